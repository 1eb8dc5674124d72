// The risk: masks that are read beyond their end or belong to a neighbour, NaN that is masked away, another rounding of bf16.
#include "kernels/masked.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "kernels/masked_variants.h"
#include "tests/unit/kernels/buffer.h"

namespace ipexrun::kernels::test {
namespace {

class MaskedOnIsa : public testing::TestWithParam<IsaSet> {
 protected:
  std::mt19937 random_{20261123};

  Buffer run(DType dtype, const Buffer& from, const Guarded& mask, IsaSet isa, const Parallel& parallel = {}) {
    Buffer to(dtype, from.count(), 3);
    MaskedArgs args{.from = from.data(), .mask = reinterpret_cast<const std::uint8_t*>(mask.data()), .to = to.data(), .dtype = dtype};
    args.n = from.count();
    args.scale = 1.109375f;
    masked(args, parallel, isa);
    EXPECT_TRUE(to.front_is_clean());
    return to;
  }
};

TEST_P(MaskedOnIsa, GivesTheBitsOfTheReference) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    for (const std::int64_t n : {1, 7, 8, 9, 15, 16, 17, 63, 64, 65, 1000, 70001}) {
      Buffer from(dtype, n, 3);
      from.fill(random_);
      Guarded mask(static_cast<std::size_t>(n));
      for (std::int64_t i = 0; i < n; ++i) mask.data()[i] = static_cast<char>(random_() % 2);
      for (std::int64_t i = 0; i < n; i += 5) {
        from.set(i, i % 2 == 0 ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity());
      }
      const Buffer truth = run(dtype, from, mask, 0);
      const Buffer seen = run(dtype, from, mask, GetParam());
      for (std::int64_t i = 0; i < n; ++i)
        ASSERT_TRUE(seen.get(i) == truth.get(i) || (std::isnan(seen.get(i)) && std::isnan(truth.get(i)))) << i << " of " << n;
      EXPECT_EQ(run(dtype, from, mask, GetParam(), thread_parallel(3)).bytes(), seen.bytes());
    }
  }
}

TEST_P(MaskedOnIsa, HasItsName) {
  const MaskedVariants table = masked_variants();
  for (std::size_t i = 0; i < table.count; ++i) {
    if (table.first[i].needs != GetParam()) continue;
    EXPECT_STREQ(masked_variant(GetParam()), table.first[i].name);
    EXPECT_EQ(masked_supported(GetParam()), i + 1 < table.count);
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, MaskedOnIsa, testing::ValuesIn(levels_of(masked_variants())),
                         [](const auto& level) { return std::string(masked_variant(level.param)); });

}  // namespace
}  // namespace ipexrun::kernels::test
