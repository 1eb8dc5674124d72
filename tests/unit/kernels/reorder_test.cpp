// The risk: a tail, a narrow image, an alignment or a cut among threads that reads past, writes past, leaves out or rounds otherwise.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/bf16.h"
#include "kernels/dispatch.h"
#include "kernels/reorder.h"
#include "tests/unit/kernels/support.h"

namespace ipexrun::kernels::test {
namespace {

struct Image {
  std::int64_t images = 1;
  std::int64_t channels = 1;
  std::int64_t pixels = 1;
  std::int64_t offset_from = 0;  ///< elements in front of the source (alignment)
  std::int64_t offset_to = 0;
  int threads = 1;
};

constexpr DType kTypes[] = {DType::kF32, DType::kBf16};

std::size_t size_of(std::int64_t elements, DType dtype) { return static_cast<std::size_t>(elements * bytes_of(dtype)); }

/// One element of the source as the target must hold it, in the low bits.
std::uint32_t expected(const char* from, DType from_dtype, DType to_dtype, std::int64_t index) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, from + index * bytes_of(from_dtype), size_of(1, from_dtype));
  if (from_dtype == to_dtype) return bits;
  return from_dtype == DType::kF32 ? bf16_from_f32(__builtin_bit_cast(float, bits)) : bits << 16;
}

class ReorderOnIsa : public testing::TestWithParam<IsaSet> {
 protected:
  /// Both directions of all four pairs of types, on random bits: NaN of every kind, infinities and denormals are among them.
  void check(const Image& image) {
    for (const DType from : kTypes) {
      for (const DType to : kTypes) {
        check(image, from, to, false);
        check(image, from, to, true);
        if (HasFailure()) return;
      }
    }
  }

 private:
  void check(const Image& image, DType from_dtype, DType to_dtype, bool planar) {
    const std::int64_t count = image.images * image.channels * image.pixels;
    const Guarded from(size_of(image.offset_from + count, from_dtype));
    const Guarded to(size_of(image.offset_to + count, to_dtype));
    for (std::size_t i = 0; i + 2 <= from.bytes(); i += 2) {
      const auto bits = static_cast<std::uint16_t>(random_());
      std::memcpy(from.data() + i, &bits, 2);
    }
    ReorderArgs args;
    args.from = from.data() + image.offset_from * bytes_of(from_dtype);
    args.from_dtype = from_dtype;
    args.to = to.data() + image.offset_to * bytes_of(to_dtype);
    args.to_dtype = to_dtype;
    args.images = image.images;
    args.channels = image.channels;
    args.pixels = image.pixels;
    (planar ? to_planar : to_channels_last)(args, thread_parallel(image.threads), GetParam());
    const std::string what = std::string(reorder_variant(GetParam())) + (planar ? " to planar" : " to last") + " from " +
                             std::to_string(static_cast<int>(from_dtype)) + " to " + std::to_string(static_cast<int>(to_dtype)) + " n " +
                             std::to_string(image.images) + " c " + std::to_string(image.channels) + " p " + std::to_string(image.pixels) +
                             " at " + std::to_string(image.offset_from) + "," + std::to_string(image.offset_to) + " threads " +
                             std::to_string(image.threads);
    const std::int64_t rows = planar ? image.pixels : image.channels;
    const std::int64_t columns = planar ? image.channels : image.pixels;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t row = i / columns % rows;
      const std::int64_t target = i - i % (rows * columns) + i % columns * rows + row;
      std::uint32_t seen = 0;
      std::memcpy(&seen, static_cast<char*>(args.to) + target * bytes_of(to_dtype), size_of(1, to_dtype));
      ASSERT_EQ(seen, expected(static_cast<const char*>(args.from), from_dtype, to_dtype, i)) << what << " element " << i;
    }
    for (const char* byte = to.data(); byte < args.to; ++byte) ASSERT_EQ(*byte, 0x7f) << what << ": memory in front was written";
  }

  std::mt19937 random_{20240613};
};

TEST_P(ReorderOnIsa, SizesAroundEachBlock) {
  const std::int64_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65};
  for (const std::int64_t channels : sizes) {
    for (const std::int64_t pixels : sizes) check({.channels = channels, .pixels = pixels});
  }
}

TEST_P(ReorderOnIsa, SizesAroundEachTile) {
  for (const std::int64_t size : {255, 256, 257, 511, 513}) {
    for (const std::int64_t other : {1, 3, 4, 5, 20, 257}) {
      check({.channels = size, .pixels = other});
      check({.channels = other, .pixels = size});
    }
  }
}

TEST_P(ReorderOnIsa, EveryAlignment) {
  for (std::int64_t offset = 0; offset < 32; ++offset) {
    check({.channels = 37, .pixels = 45, .offset_from = offset, .offset_to = 31 - offset});
    check({.channels = 3, .pixels = 45, .offset_from = offset, .offset_to = offset});
  }
}

TEST_P(ReorderOnIsa, ManyImages) {
  check({.images = 5, .channels = 33, .pixels = 35});
  check({.images = 5, .channels = 3, .pixels = 35});
  check({.images = 3, .channels = 1, .pixels = 300});
}

TEST_P(ReorderOnIsa, NothingIsFine) {
  check({.images = 0, .channels = 3, .pixels = 3});
  check({.images = 3, .channels = 0, .pixels = 3});
  check({.images = 3, .channels = 3, .pixels = 0});
}

TEST_P(ReorderOnIsa, AnyNumberOfThreads) {
  for (int threads = 1; threads <= 5; ++threads) {
    check({.images = 1, .channels = 70, .pixels = 700, .threads = threads});
    check({.images = 1, .channels = 700, .pixels = 70, .threads = threads});
    check({.images = 3, .channels = 3, .pixels = 7001, .threads = threads});
    check({.images = 7, .channels = 90, .pixels = 121, .threads = threads});
  }
}

TEST_P(ReorderOnIsa, UsesTheVariantOfItsLevel) {
  const ReorderVariants table = reorder_variants();
  for (std::size_t i = 0; i < table.count; ++i) {
    if (table.first[i].needs == GetParam()) {
      EXPECT_STREQ(reorder_variant(GetParam()), table.first[i].name);
      EXPECT_EQ(reorder_supported(GetParam()), i + 1 < table.count);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, ReorderOnIsa, testing::ValuesIn(levels_of(reorder_variants())),
                         [](const auto& level) { return std::string(reorder_variant(level.param)); });

}  // namespace
}  // namespace ipexrun::kernels::test
