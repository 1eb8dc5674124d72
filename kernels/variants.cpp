// The tables of variants. A variant that the compiler could not build is not in them (IPEXRUN_KERNELS_* from CMakeLists.txt).
#include "kernels/dispatch.h"
#include "kernels/ref/activation.h"
#include "kernels/ref/attention.h"
#include "kernels/ref/convert.h"
#include "kernels/ref/cross_entropy.h"
#include "kernels/ref/dropout.h"
#include "kernels/ref/embedding.h"
#include "kernels/ref/gated.h"
#include "kernels/ref/linear.h"
#include "kernels/ref/linear_int4.h"
#include "kernels/ref/linear_int8.h"
#include "kernels/ref/normalize.h"
#include "kernels/ref/pack.h"
#include "kernels/ref/pointwise.h"
#include "kernels/ref/pool.h"
#include "kernels/ref/reorder.h"
#include "kernels/ref/resize.h"
#include "kernels/ref/rotary.h"
#include "kernels/ref/topk.h"

#ifdef IPEXRUN_KERNELS_SIMD
#include "kernels/simd/activation.h"
#include "kernels/simd/attention.h"
#include "kernels/simd/convert.h"
#include "kernels/simd/cross_entropy.h"
#include "kernels/simd/dropout.h"
#include "kernels/simd/embedding.h"
#include "kernels/simd/gated.h"
#include "kernels/simd/linear.h"
#include "kernels/simd/linear_int4.h"
#include "kernels/simd/linear_int8.h"
#include "kernels/simd/normalize.h"
#include "kernels/simd/pack.h"
#include "kernels/simd/pointwise.h"
#include "kernels/simd/pool.h"
#include "kernels/simd/reorder.h"
#include "kernels/simd/resize.h"
#include "kernels/simd/rotary.h"
#include "kernels/simd/topk.h"
#endif
#ifdef IPEXRUN_KERNELS_AMX
#include "kernels/amx/attention.h"
#include "kernels/amx/linear.h"
#include "kernels/amx/linear_int4.h"
#endif
#ifdef IPEXRUN_KERNELS_AMX_AVX512_FP16
#include "kernels/amx/linear_int8.h"
#endif

namespace ipexrun::kernels {
namespace {

constexpr LinearVariant kLinear[] = {
#ifdef IPEXRUN_KERNELS_AMX
    {"amx_bf16", kLevelAvx512 | kIsaAvx512Bf16 | kIsaAmxBf16, true, amx::linear_scratch_bytes, amx::linear},
#endif
#ifdef IPEXRUN_KERNELS_AVX512_BF16
    {"avx512_bf16", kLevelAvx512 | kIsaAvx512Bf16, true, avx512_bf16::linear_scratch_bytes, avx512_bf16::linear},
#endif
#ifdef IPEXRUN_KERNELS_AVX512
    {"avx512", kLevelAvx512, false, avx512::linear_scratch_bytes, avx512::linear},
#endif
#ifdef IPEXRUN_KERNELS_AVX2
    {"avx2", kLevelAvx2, false, avx2::linear_scratch_bytes, avx2::linear},
#endif
    {"ref", 0, false, ref::linear_scratch_bytes, ref::linear},
};

constexpr PackVariant kPack[] = {
#ifdef IPEXRUN_KERNELS_AVX512
    {"avx512", kLevelAvx512, avx512::pack_panel},
#endif
#ifdef IPEXRUN_KERNELS_AVX2
    {"avx2", kLevelAvx2, avx2::pack_panel},
#endif
    {"ref", 0, ref::pack_panel},
};

constexpr LinearInt8Variant kLinearInt8[] = {
#ifdef IPEXRUN_KERNELS_AVX512
#ifdef IPEXRUN_KERNELS_AMX_AVX512_FP16
    {"amx_bf16", kLevelAvx512 | kIsaAvx512Bf16 | kIsaAvx512Fp16 | kIsaAmxBf16, avx512::int8_dot, avx512::int8_finish, avx512::int8_unpack,
     amx_avx512_fp16::int8_columns, amx_avx512_fp16::int8_scratch_bytes},
#endif
    {"avx512", kLevelAvx512, avx512::int8_dot, avx512::int8_finish, avx512::int8_unpack, nullptr, nullptr},
#endif
#ifdef IPEXRUN_KERNELS_AVX2
    {"avx2", kLevelAvx2, avx2::int8_dot, avx2::int8_finish, nullptr, nullptr, nullptr},
#endif
    {"ref", 0, ref::int8_dot, ref::int8_finish, nullptr, nullptr, nullptr},
};

constexpr LinearInt4Variant kLinearInt4[] = {
#ifdef IPEXRUN_KERNELS_AVX512_BF16
#ifdef IPEXRUN_KERNELS_AMX
    {"amx_bf16", kLevelAvx512 | kIsaAvx512Bf16 | kIsaAmxBf16, avx512_bf16::int4_group_sums, avx512_bf16::int4_dot, avx512_bf16::int4_unpack,
     amx::int4_blocks, amx::int4_scratch_bytes},
#endif
    {"avx512_bf16", kLevelAvx512 | kIsaAvx512Bf16, avx512_bf16::int4_group_sums, avx512_bf16::int4_dot, avx512_bf16::int4_unpack, nullptr,
     nullptr},
#endif
    {"ref", 0, nullptr, ref::int4_dot, nullptr, nullptr, nullptr},
};

constexpr ReorderVariant kReorder[] = {
#ifdef IPEXRUN_KERNELS_AVX512
    {"avx512", kLevelAvx512, avx512::transpose},
#endif
#ifdef IPEXRUN_KERNELS_AVX2
    {"avx2", kLevelAvx2, avx2::transpose},
#endif
    {"ref", 0, ref::transpose},
};

constexpr ActivationVariant kActivation[] = {
#ifdef IPEXRUN_KERNELS_AVX512
    {"avx512", kLevelAvx512, 0, avx512::activation},
#endif
#ifdef IPEXRUN_KERNELS_AVX2
    {"avx2", kLevelAvx2, 1u << static_cast<int>(Activation::kGelu), avx2::activation},
#endif
    {"ref", 0, ~0u, ref::activation},
};

constexpr NormalizeVariant kNormalize[] = {
#ifdef IPEXRUN_KERNELS_AVX512
    {"avx512", kLevelAvx512, avx512::softmax, avx512::layer_norm, avx512::rms_norm, avx512::group_norm, avx512::scale_channels},
#endif
#ifdef IPEXRUN_KERNELS_AVX2
    {"avx2", kLevelAvx2, avx2::softmax, avx2::layer_norm, avx2::rms_norm, avx2::group_norm, avx2::scale_channels},
#endif
    {"ref", 0, ref::softmax, ref::layer_norm, ref::rms_norm, ref::group_norm, ref::scale_channels},
};

constexpr PoolVariant kPool[] = {
#ifdef IPEXRUN_KERNELS_AVX512
    {"avx512", kLevelAvx512, avx512::max_pool, avx512::average_pool, avx512::adaptive_pool},
#endif
#ifdef IPEXRUN_KERNELS_AVX2
    {"avx2", kLevelAvx2, avx2::max_pool, avx2::average_pool, avx2::adaptive_pool},
#endif
    {"ref", 0, ref::max_pool, ref::average_pool, ref::adaptive_pool},
};

constexpr ResizeVariant kResize[] = {
#ifdef IPEXRUN_KERNELS_AVX512
    {"avx512", kLevelAvx512, avx512::resize},
#endif
#ifdef IPEXRUN_KERNELS_AVX2
    {"avx2", kLevelAvx2, avx2::resize},
#endif
    {"ref", 0, ref::resize},
};

constexpr std::int64_t kAllRows = INT64_MAX;
/// Rows that meet a panel of K while it is in L1, and 48 rows of 512 scores: 99 KiB.
constexpr AttentionSizes kInRegisters{6, 48, 512};
/// Rows of two tiles, and what they need of a block of keys stays near L1.
[[maybe_unused]] constexpr AttentionSizes kInTiles{32, 32, 256};
constexpr AttentionVariant kAttention[] = {
#if defined(IPEXRUN_KERNELS_AMX) && defined(IPEXRUN_KERNELS_AVX512)
    {"amx_bf16", kLevelAvx512 | kIsaAvx512Bf16 | kIsaAmxBf16, kInTiles, amx::attention, 4, avx512::attention_few, true},
#endif
#ifdef IPEXRUN_KERNELS_AVX512_BF16
    {"avx512_bf16", kLevelAvx512 | kIsaAvx512Bf16, kInRegisters, avx512_bf16::attention, 4, avx512::attention_few},
#endif
#ifdef IPEXRUN_KERNELS_AVX512
    {"avx512", kLevelAvx512, kInRegisters, avx512::attention, 20, avx512::attention_few},
#endif
#ifdef IPEXRUN_KERNELS_AVX2
    {"avx2", kLevelAvx2, kInRegisters, avx2::attention, 16, avx2::attention_few},
#endif
    {"ref", 0, kInRegisters, nullptr, kAllRows, ref::attention},
};

constexpr TopkVariant kTopk[] = {
#ifdef IPEXRUN_KERNELS_AVX512
    {"avx512", kLevelAvx512, avx512::topk_collect},
#endif
#ifdef IPEXRUN_KERNELS_AVX2
    {"avx2", kLevelAvx2, avx2::topk_collect},
#endif
    {"ref", 0, ref::topk_collect},
};

constexpr EmbeddingVariant kEmbedding[] = {
#ifdef IPEXRUN_KERNELS_AVX512
    {"avx512", kLevelAvx512, avx512::embedding_bags},
#endif
#ifdef IPEXRUN_KERNELS_AVX2
    {"avx2", kLevelAvx2, avx2::embedding_bags},
#endif
    {"ref", 0, ref::embedding_bags},
};

constexpr GatedVariant kGated[] = {
#ifdef IPEXRUN_KERNELS_AVX512
    {"avx512", kLevelAvx512, avx512::gated},
#endif
#ifdef IPEXRUN_KERNELS_AVX2
    {"avx2", kLevelAvx2, avx2::gated},
#endif
    {"ref", 0, ref::gated},
};

constexpr PointwiseVariant kPointwise[] = {
#ifdef IPEXRUN_KERNELS_AVX512
    {"avx512", kLevelAvx512, avx512::point_load, avx512::point_run, avx512::point_store},
#endif
#ifdef IPEXRUN_KERNELS_AVX2
    {"avx2", kLevelAvx2, avx2::point_load, avx2::point_run, avx2::point_store},
#endif
    {"ref", 0, ref::point_load, ref::point_run, ref::point_store},
};

constexpr RotaryVariant kRotary[] = {
#ifdef IPEXRUN_KERNELS_AVX512
    {"avx512", kLevelAvx512, avx512::rotary},
#endif
#ifdef IPEXRUN_KERNELS_AVX2
    {"avx2", kLevelAvx2, avx2::rotary},
#endif
    {"ref", 0, ref::rotary},
};

constexpr CrossEntropyVariant kCrossEntropy[] = {
#ifdef IPEXRUN_KERNELS_AVX512
    {"avx512", kLevelAvx512, avx512::cross_entropy_losses, avx512::cross_entropy_grads},
#endif
#ifdef IPEXRUN_KERNELS_AVX2
    {"avx2", kLevelAvx2, avx2::cross_entropy_losses, avx2::cross_entropy_grads},
#endif
    {"ref", 0, ref::cross_entropy_losses, ref::cross_entropy_grads},
};

constexpr DropoutVariant kDropout[] = {
#ifdef IPEXRUN_KERNELS_AVX512
    {"avx512", kLevelAvx512, avx512::dropout, avx512::dropout_grad},
#endif
#ifdef IPEXRUN_KERNELS_AVX2
    {"avx2", kLevelAvx2, avx2::dropout, avx2::dropout_grad},
#endif
    {"ref", 0, ref::dropout, ref::dropout_grad},
};

constexpr ConvertVariant kConvert[] = {
#ifdef IPEXRUN_KERNELS_AVX512
    {"avx512", kLevelAvx512, avx512::convert},
#endif
#ifdef IPEXRUN_KERNELS_AVX2
    {"avx2", kLevelAvx2, avx2::convert},
#endif
    {"ref", 0, ref::convert},
};

template <typename Variant, std::size_t N>
constexpr Variants<Variant> table_of(const Variant (&variants)[N]) {
  return {variants, N};
}

}  // namespace

LinearVariants linear_variants() { return table_of(kLinear); }

PackVariants pack_variants() { return table_of(kPack); }
LinearInt4Variants linear_int4_variants() { return table_of(kLinearInt4); }
LinearInt8Variants linear_int8_variants() { return table_of(kLinearInt8); }
ActivationVariants activation_variants() { return table_of(kActivation); }
NormalizeVariants normalize_variants() { return table_of(kNormalize); }
PoolVariants pool_variants() { return table_of(kPool); }
TopkVariants topk_variants() { return table_of(kTopk); }
EmbeddingVariants embedding_variants() { return table_of(kEmbedding); }
ResizeVariants resize_variants() { return table_of(kResize); }
GatedVariants gated_variants() { return table_of(kGated); }
PointwiseVariants pointwise_variants() { return table_of(kPointwise); }
RotaryVariants rotary_variants() { return table_of(kRotary); }
CrossEntropyVariants cross_entropy_variants() { return table_of(kCrossEntropy); }
DropoutVariants dropout_variants() { return table_of(kDropout); }
ConvertVariants convert_variants() { return table_of(kConvert); }
ReorderVariants reorder_variants() { return table_of(kReorder); }

AttentionVariants attention_variants(DType dtype) {
  std::size_t first = 0;  // pairs of bf16 are of no use for fp32
  while (dtype == DType::kF32 && (kAttention[first].needs & (kIsaAvx512Bf16 | kIsaAmxBf16)) != 0) ++first;
  return {kAttention + first, table_of(kAttention).count - first};
}

}  // namespace ipexrun::kernels
