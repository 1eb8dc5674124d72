#include "kernels/decode_attention_variants.h"

#include "kernels/ref/decode_attention.h"
#include "kernels/simd/decode_attention.h"

namespace ipexrun::kernels {
namespace {

/// Keys of a unit: 64 KiB of K and of V at a depth of 128 in bf16. A constant, so that bits depend on the sequence alone.
[[maybe_unused]] constexpr std::int64_t kUnitKeys = 256;

constexpr DecodeVariant kDecode[] = {
#ifdef IPEXRUN_KERNELS_AVX512
    {"avx512", kLevelAvx512, kUnitKeys, avx512::decode_scratch_bytes, avx512::decode_run, avx512::decode_merge},
#endif
#ifdef IPEXRUN_KERNELS_AVX2
    {"avx2", kLevelAvx2, kUnitKeys, avx2::decode_scratch_bytes, avx2::decode_run, avx2::decode_merge},
#endif
    {"ref", 0, INT64_MAX, ref::decode_scratch_bytes, ref::decode_run, nullptr},
};

}  // namespace

DecodeVariants decode_attention_variants() { return {kDecode, sizeof(kDecode) / sizeof(kDecode[0])}; }

}  // namespace ipexrun::kernels
