// The level ladder: names as IPEX has them, each level containing what it implies.
#include "configs/base/isa.h"

#include "configs/contract/env.h"

#include <gtest/gtest.h>

#include "configs/base/isa_variants.h"

namespace ipexrun {
namespace {

TEST(Isa, LevelNamesAreThoseOfIpexInItsOrder) {
  const std::vector<std::string_view> expected{"default",     "avx2", "avx2_vnni",   "avx512",  "avx512_vnni",
                                               "avx512_bf16", "amx",  "avx512_fp16", "amx_fp16"};
  EXPECT_EQ(level_names(), expected);
}

TEST(Isa, EveryNameMapsToAMaskThatHasThatName) {
  for (const std::string_view name : level_names()) {
    const auto mask = level_from_name(name);
    ASSERT_TRUE(mask.has_value()) << name;
    EXPECT_EQ(level_name(*mask), name);
  }
  EXPECT_FALSE(level_from_name("AVX2").has_value());
  EXPECT_FALSE(level_from_name("").has_value());
}

TEST(Isa, AmxImpliesTheAvx512LevelsBelowIt) {
  EXPECT_TRUE(isa_has(kLevelAmx, kLevelAvx512Bf16));
  EXPECT_TRUE(isa_has(kLevelAvx512Bf16, kLevelAvx512));
  EXPECT_FALSE(isa_has(kLevelAvx512, kIsaAmxBf16));
}

TEST(Isa, VariantsOfABuildMakeItsLevel) {
  EXPECT_EQ(level_name(isa_of_variants("avx2 avx512 avx512_bf16 amx avx2_vnni avx512_vnni amx_int8 ")), "amx");
  EXPECT_EQ(level_name(isa_of_variants("avx2 avx512 avx512_bf16 amx avx2_vnni avx512_vnni amx_int8 amx_avx512_fp16 avx512_fp16")),
            "avx512_fp16");
  EXPECT_EQ(level_name(isa_of_variants("avx2 avx512 avx512_vnni")), "avx512_vnni");
  EXPECT_EQ(level_name(isa_of_variants("avx2 avx512 avx512_bf16 amx")), "avx512");  // an older compiler
  EXPECT_EQ(isa_of_variants(""), kLevelDefault);
  EXPECT_EQ(isa_of_variants("neon "), kLevelDefault);
}

TEST(Isa, TheProcessNeverHasMoreThanTheCpu) { EXPECT_TRUE(isa_has(isa_of_cpu(), isa_of_process())); }

TEST(IsaLevels, AreWhatTheVariableThatCapsThemTakes) {
  const std::vector<std::string>& allowed = env::row(env::Id::kMaxIsa).allowed;
  EXPECT_EQ(std::vector<std::string_view>(allowed.begin(), allowed.end()), level_names());
}

}  // namespace
}  // namespace ipexrun
