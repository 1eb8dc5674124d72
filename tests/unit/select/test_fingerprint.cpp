// Risk: a byte that no part of a hash sees, or a hash that depends on who computed it.
#include <gtest/gtest.h>

#include <thread>
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

}  // namespace
}  // namespace ipexrun::preload
