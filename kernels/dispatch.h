// How one kernel chooses among its variants: a plain table, best first, of {instruction sets needed, functions}.
//
// A variant is a source file compiled for one instruction set. It sees only this header, packed.h, bf16.h and intrinsics: a
// template or inline function of the standard library compiled there could be the copy that the linker keeps for the whole
// program, and then run on a machine that lacks the instructions. The test no_weak_symbols holds this.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/convert.h"
#include "kernels/cross_entropy.h"
#include "kernels/dropout.h"
#include "kernels/embedding.h"
#include "kernels/gated.h"
#include "kernels/linear.h"
#include "kernels/linear_int4.h"
#include "kernels/linear_int8.h"
#include "kernels/normalize.h"
#include "kernels/pointwise.h"
#include "kernels/pool_plan.h"
#include "kernels/resize.h"
#include "kernels/rotary.h"
#include "kernels/topk.h"

namespace ipexrun::kernels {

/// A table, best first; the reference, which needs nothing, is last.
template <typename Variant>
struct Variants {
  const Variant* first;
  std::size_t count;
};

/// The part of C that one worker computes: rows [row_begin, row_end) and panels of 32 columns [panel_begin, panel_end).
struct LinearBlock {
  std::int64_t row_begin;
  std::int64_t row_end;
  std::int64_t panel_begin;
  std::int64_t panel_end;
  std::int64_t l2_bytes = 2 << 20;   ///< of the core that computes it (caches.h): variants take the sizes of their blocks from it
  std::int64_t l1_bytes = 48 << 10;  ///< likewise
  /// The block before this one had the same rows of the same A, and its scratch, which this one gets: what it made of them is still there.
  bool same_rows = false;
  /// Panels up to here are likely to follow, with the same rows: worth fetching. At most `panel_end`: none.
  std::int64_t panel_ahead = 0;
};

struct LinearVariant {
  const char* name;
  IsaSet needs;
  /// bf16 products are native, so offering the variant makes sense (see linear_bf16_supported).
  bool native;
  /// Bytes of scratch that run() wants for a block, at most what kernels/README.md states.
  std::size_t (*scratch_bytes)(const LinearArgs& args, const LinearBlock& block);
  /// Computes the block. k >= 1, the block is not empty. `scratch` is 64-byte aligned. Does not throw or allocate.
  void (*run)(const LinearArgs& args, const LinearBlock& block, void* scratch);
};

using LinearVariants = Variants<LinearVariant>;
LinearVariants linear_variants();

struct PackVariant {
  const char* name;
  IsaSet needs;
  /// One panel of packed.h, zeros where B ends. Rows or columns of B are adjacent, but for the reference. k, n >= 1; `to` is 64-byte
  /// aligned.
  void (*panel)(const MatrixB& b, std::int64_t panel, std::uint16_t* to);
};

using PackVariants = Variants<PackVariant>;
PackVariants pack_variants();

struct LinearInt8Variant {
  const char* name;
  IsaSet needs;
  /// Up to 4 rows of A by up to 4 columns of B (rows in memory), k >= 1; `a` goes on with zeros to a multiple of 32. Sum (r, c) to
  /// sums[4 * r + c].
  void (*dot)(const float* a, std::int64_t lda, std::int64_t rows, const std::int8_t* b, std::int64_t ldb, std::int64_t columns,
              std::int64_t k, float* sums);
  /// to[i] = sums[i] * scales[i], rounded.
  void (*finish)(const float* sums, const float* scales, std::int64_t n, DType dtype, void* to);
  /// Up to 32 columns of B as a panel of packed.h; null where that does not pay.
  void (*unpack)(const std::int8_t* b, std::int64_t ldb, std::int64_t columns, std::int64_t k, std::uint16_t* panel);
  /// Columns [begin, end) of C, A of up to 64 rows of bf16, k >= 1; null where there are no tiles. False, having written nothing, where A
  /// has NaN, infinities or numbers of 2^26 and more. `scratch`, 64-byte aligned, has scratch_bytes().
  bool (*columns)(const LinearInt8Args& args, std::int64_t begin, std::int64_t end, void* scratch);
  std::size_t (*scratch_bytes)(const LinearInt8Args& args);
};

using LinearInt8Variants = Variants<LinearInt8Variant>;
LinearInt8Variants linear_int8_variants();

struct LinearInt4Variant {
  const char* name;
  IsaSet needs;
  /// Sums of A over each group, a row after the other. False where one is not finite, or numbers are so large that 143 times as much may
  /// not be: only the reference may compute those. Null for it.
  bool (*group_sums)(const LinearInt4Args& args, float* sums);
  /// Up to 4 rows of C from `row` on, block `block` of 64 columns. `sums`: of A over each group, rows one after the other, all finite but
  /// for the reference, which reads none.
  void (*dot)(const LinearInt4Args& args, std::int64_t block, std::int64_t row, std::int64_t rows, const float* sums);
  /// 32 columns, from 32 * panel on, as a panel of packed.h; null where that does not pay.
  void (*unpack)(const LinearInt4Args& args, std::int64_t panel, std::uint16_t* to);
  /// All rows of blocks [begin, end), `sums` as for dot; null where there are no tiles. `scratch`, 64-byte aligned, has scratch_bytes().
  void (*blocks)(const LinearInt4Args& args, std::int64_t begin, std::int64_t end, const float* sums, void* scratch);
  std::size_t (*scratch_bytes)(const LinearInt4Args& args);
};

using LinearInt4Variants = Variants<LinearInt4Variant>;
LinearInt4Variants linear_int4_variants();

/// A matrix to be transposed: element (r, c) from `from[r * from_stride + c]` to `to[c * to_stride + r]`, strides in elements.
struct TransposeBlock {
  const void* from;
  std::int64_t from_stride;
  void* to;
  std::int64_t to_stride;
  std::int64_t rows;
  std::int64_t columns;
  DType from_dtype;
  DType to_dtype;
};

struct ReorderVariant {
  const char* name;
  IsaSet needs;
  void (*run)(const TransposeBlock& block);
};

using ReorderVariants = Variants<ReorderVariant>;
ReorderVariants reorder_variants();

struct ActivationVariant {
  const char* name;
  IsaSet needs;
  /// What is no faster than stock here, as bits 1 << Activation.
  unsigned not_worth;
  /// All `n` elements, n >= 1, on this thread.
  void (*run)(const ActivationArgs& args);
};

using ActivationVariants = Variants<ActivationVariant>;
ActivationVariants activation_variants();

/// Rows of scratch are this many floats long, or a multiple.
inline constexpr std::int64_t kNormalizePadding = 32;

struct NormalizeVariant {
  const char* name;
  IsaSet needs;
  /// Rows [row_begin, row_end) on this thread, columns >= 1. `scratch`, 64-byte aligned, is one padded row for softmax, two for norms
  /// and one more each where these have a residual and no place for the sum, and where they have no place for the result.
  void (*softmax)(const SoftmaxArgs& args, std::int64_t row_begin, std::int64_t row_end, float* scratch);
  void (*layer_norm)(const NormArgs& args, std::int64_t row_begin, std::int64_t row_end, float* scratch);
  void (*rms_norm)(const NormArgs& args, std::int64_t row_begin, std::int64_t row_end, float* scratch);
  /// No scratch.
  void (*group_norm)(const GroupNormArgs& args, std::int64_t row_begin, std::int64_t row_end, float* scratch);
  /// Two padded rows where channels are adjacent.
  void (*scale_channels)(const ChannelScaleArgs& args, std::int64_t row_begin, std::int64_t row_end, float* scratch);
};

using NormalizeVariants = Variants<NormalizeVariant>;
NormalizeVariants normalize_variants();

/// How a call of attention is cut: units of `row_block` rows of a head, `blocks` of them a head, and within a unit blocks of keys.
struct AttentionPlan {
  std::int64_t row_block;
  std::int64_t blocks;
  std::int64_t key_block;         ///< a multiple of 32
  std::int64_t padded_key_block;  ///< words from one row of scores to the next
  std::int64_t padded_depth;      ///< a multiple of 32
  bool resident;                  ///< scratch holds K and V of a whole head, else of a block of keys
  std::int64_t packed_keys;       ///< that scratch has room for
  std::int64_t rest;              ///< words of scratch before those that only the rounding of fp32 needs
  bool* refused;                  ///< set where rounding fp32 would cost too many digits: the result is not used
};

/// Rows of Q that walk K and V together where these are not packed: query i of a head of K and V is row i % rows of its head of Q
/// i / rows, among those that share it.
inline constexpr std::int64_t kQueriesAtOnce = 4;

/// How a variant wants a call to be cut.
struct AttentionSizes {
  std::int64_t tile_rows;  ///< rows of a unit are a multiple, where there are enough
  std::int64_t row_block;  ///< rows of a unit, at most
  std::int64_t key_block;  ///< keys of a block, at most
};

struct AttentionVariant {
  const char* name;
  IsaSet needs;
  AttentionSizes sizes;
  /// Units [unit_begin, unit_end), head after head. `scratch`, 64-byte aligned, is what attention.cpp counts for a plan.
  void (*blocks)(const AttentionArgs& args, const AttentionPlan& plan, std::int64_t unit_begin, std::int64_t unit_end, float* scratch);
  /// Up to so many queries of a head of K and V packing these takes longer than it saves.
  std::int64_t few;
  /// Units [unit_begin, unit_end) of kQueriesAtOnce queries, those of one head of K and V after those of another. `scratch` has room for
  /// so many rows of Q and of scores.
  void (*run_few)(const AttentionArgs& args, std::int64_t unit_begin, std::int64_t unit_end, float* scratch);
  bool rounds_f32 = false;  ///< `blocks` takes fp32 as well, with bf16 inside
};

using AttentionVariants = Variants<AttentionVariant>;

/// The reference has only `run_few`.
AttentionVariants attention_variants(DType dtype);

struct PoolVariant {
  const char* name;
  IsaSet needs;
  /// Rows [row_begin, row_end) of the output of all planes, one after the other, on this thread. `scratch`, 64-byte aligned, as planned.
  void (*max)(const PoolArgs& args, const PoolPlan& plan, std::int64_t row_begin, std::int64_t row_end, void* scratch);
  void (*average)(const PoolArgs& args, const PoolPlan& plan, std::int64_t row_begin, std::int64_t row_end, void* scratch);
  void (*adaptive)(const PoolArgs& args, const PoolPlan& plan, std::int64_t row_begin, std::int64_t row_end, void* scratch);
};

using PoolVariants = Variants<PoolVariant>;
PoolVariants pool_variants();

struct ResizeVariant {
  const char* name;
  IsaSet needs;
  /// Rows [row_begin, row_end) of the output of all planes, one after the other, on this thread. `scratch` is 64-byte aligned.
  void (*run)(const ResizeArgs& args, std::int64_t row_begin, std::int64_t row_end, void* scratch);
};

using ResizeVariants = Variants<ResizeVariant>;
ResizeVariants resize_variants();

/// A scan may write so many entries more than its limit.
inline constexpr std::int64_t kTopkSlack = 16;

struct TopkVariant {
  const char* name;
  IsaSet needs;
  /// Appends `key << 32 | place` of each element from `begin` on whose key is not below `bar`; keys are ordered as the numbers are, or the
  /// other way round for the smallest. Returns the first place that was not looked at: `end`, or where `limit` entries were reached.
  std::int64_t (*collect)(const float* from, std::int64_t begin, std::int64_t end, bool largest, std::int32_t bar, std::int64_t* kept,
                          std::int64_t limit, std::int64_t* count);
};

using TopkVariants = Variants<TopkVariant>;
TopkVariants topk_variants();

struct EmbeddingVariant {
  const char* name;
  IsaSet needs;
  /// Bags [bag_begin, bag_end) on this thread. Reads no row before its index is known to be in range; false where one is not, or an offset.
  bool (*bags)(const EmbeddingBagArgs& args, std::int64_t bag_begin, std::int64_t bag_end);
};

using EmbeddingVariants = Variants<EmbeddingVariant>;
EmbeddingVariants embedding_variants();

struct GatedVariant {
  const char* name;
  IsaSet needs;
  /// The first row, columns >= 1, on this thread.
  void (*run)(const GatedArgs& args);
};

using GatedVariants = Variants<GatedVariant>;
GatedVariants gated_variants();

/// Tiles of whole vectors of 16 numbers, of which the last may lie beyond the end; all on this thread.
struct PointwiseVariant {
  const char* name;
  IsaSet needs;
  /// `rows` rows of `n` elements, `stride` apart in a row and `next_row` from one row to the next, as numbers side by side.
  void (*load)(const void* from, PointType type, std::int64_t stride, std::int64_t n, std::int64_t next_row, std::int64_t rows, float* to);
  /// `n` is a multiple of 16, at most kPointTile.
  void (*run)(const PointInstruction* instructions, int count, float* const* slots, std::int64_t n);
  void (*store)(const float* from, PointType type, std::int64_t stride, std::int64_t n, void* to);
};

using PointwiseVariants = Variants<PointwiseVariant>;
PointwiseVariants pointwise_variants();

struct RotaryVariant {
  const char* name;
  IsaSet needs;
  /// Rows [row_begin, row_end) of all on this thread, in the order of rotary_rows.h. `rotated` is right.
  void (*run)(const RotaryArgs& args, bool heads_outside, std::int64_t row_begin, std::int64_t row_end);
};

using RotaryVariants = Variants<RotaryVariant>;
RotaryVariants rotary_variants();

struct CrossEntropyVariant {
  const char* name;
  IsaSet needs;
  /// Rows [row_begin, row_end) on this thread, columns >= 1 where a target counts; `weights` is the sum of all. Writes losses and lse.
  void (*losses)(const CrossEntropyArgs& args, double weights, std::int64_t row_begin, std::int64_t row_end, double* losses);
  void (*grads)(const CrossEntropyGradArgs& args, double weights, std::int64_t row_begin, std::int64_t row_end);
};

using CrossEntropyVariants = Variants<CrossEntropyVariant>;
CrossEntropyVariants cross_entropy_variants();

struct DropoutVariant {
  const char* name;
  IsaSet needs;
  /// All `n` elements, n >= 1, on this thread; p is right.
  void (*run)(const DropoutArgs& args);
  void (*grad)(const DropoutGradArgs& args);
};

using DropoutVariants = Variants<DropoutVariant>;
DropoutVariants dropout_variants();

struct ConvertVariant {
  const char* name;
  IsaSet needs;
  /// All `n` elements, n >= 1, on this thread; the formats differ.
  void (*run)(const ConvertArgs& args);
};

using ConvertVariants = Variants<ConvertVariant>;
ConvertVariants convert_variants();

}  // namespace ipexrun::kernels
