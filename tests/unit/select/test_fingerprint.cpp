// Risk: a byte that no part of a hash sees, or a hash that depends on who computed it.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "preload/select/fingerprint.h"
#include "tests/unit/select/workers.h"

namespace ipexrun::preload {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(FullHash, is_the_same_on_any_number_of_threads) {
  std::vector<unsigned char> bytes(3 * kMiB + 17);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i * 7 + i / 251);
  for (const std::size_t size : {std::size_t{0}, std::size_t{63}, kMiB - 1, kMiB, kMiB + 1, 2 * kMiB, bytes.size()}) {
    EXPECT_EQ(full_hash(bytes.data(), size), full_hash(bytes.data(), size, {4, run_on_threads, nullptr})) << size;
  }
}

TEST(FullHash, sees_every_byte) {
  std::vector<unsigned char> bytes(2 * kMiB + 130);
  const std::uint64_t before = full_hash(bytes.data(), bytes.size());
  for (std::size_t i = 0; i < bytes.size(); i += i < 200 || i + 200 > bytes.size() ? 1 : 40009) {
    bytes[i] ^= 1;
    EXPECT_NE(full_hash(bytes.data(), bytes.size()), before) << i;
    bytes[i] ^= 1;
  }
  for (const std::size_t at : {kMiB - 1, kMiB, 2 * kMiB - 1, 2 * kMiB}) {
    bytes[at] ^= 0x80;
    EXPECT_NE(full_hash(bytes.data(), bytes.size()), before) << at;
    bytes[at] ^= 0x80;
  }
}

TEST(FullHash, tells_lengths_of_zeros_apart) {
  const std::vector<unsigned char> zeros(2 * kMiB);
  EXPECT_NE(full_hash(zeros.data(), kMiB + 64), full_hash(zeros.data(), kMiB + 128));
  EXPECT_NE(full_hash(zeros.data(), 64), full_hash(zeros.data(), 128));
}

/// Half of the columns of a weight, or every eighth row: no length of a row hides them from all lines.
TEST(SampledHash, sees_columns_and_rows_of_matrices_of_any_size) {
  for (const auto& [rows, columns] :
       {std::pair<std::size_t, std::size_t>{1008, 512}, {768, 3072}, {4096, 1408}, {512, 512}, {1024, 4096}, {65, 640}}) {
    std::vector<float> weight(rows * columns, 1.0F);
    const std::size_t size = weight.size() * sizeof(float);
    const std::uint64_t before = sampled_hash(weight.data(), size);
    EXPECT_EQ(sampled_hash(weight.data(), size), before);
    /// Whether `columns_of` floats of each row from `from` on, of each `step`th of the rows [first, last), are seen when they change.
    const auto changed = [&](std::size_t first, std::size_t last, std::size_t step, std::size_t from, std::size_t columns_of) {
      const auto write = [&](float value) {
        for (std::size_t row = first; row < last; row += step) std::fill_n(weight.begin() + row * columns + from, columns_of, value);
      };
      write(2.0F);
      const bool seen = sampled_hash(weight.data(), size) != before;
      write(1.0F);
      return seen;
    };
    for (std::size_t eighth = 0; eighth < 8; ++eighth) {
      const auto from = [&](std::size_t of) { return (eighth * of + 7) / 8; };
      const auto to = [&](std::size_t of) { return ((eighth + 1) * of + 7) / 8; };
      EXPECT_TRUE(changed(0, rows, 1, from(columns), to(columns) - from(columns))) << rows << " x " << columns;
      EXPECT_TRUE(changed(from(rows), to(rows), 1, 0, columns)) << rows << " x " << columns;
      EXPECT_TRUE(changed(eighth, rows, 8, 0, columns)) << rows << " x " << columns;
    }
  }
}

TEST(SampledHash, sees_both_ends_and_reads_no_further) {
  for (const std::size_t size : {std::size_t{4096}, std::size_t{4097}, std::size_t{5000}, 3 * kMiB + 17}) {
    const auto bytes = std::make_unique<unsigned char[]>(size);
    const std::uint64_t before = sampled_hash(bytes.get(), size);
    for (const std::size_t at : {std::size_t{0}, size - 1}) {
      bytes[at] ^= 1;
      EXPECT_NE(sampled_hash(bytes.get(), size), before) << size << ' ' << at;
      bytes[at] ^= 1;
    }
  }
}

}  // namespace
}  // namespace ipexrun::preload
