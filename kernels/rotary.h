// rotary: rotary position embedding of queries or keys, fp32 to fp32 or bf16 to bf16, in place or not.
//
// Of each row of `depth` elements the first `rotated` are taken as pairs (x, y) that become (x cos - y sin, y cos + x sin), the rest is
// copied. Pair i is (i, i + rotated / 2) for kHalves, as GPT-NeoX and Llama have it, and (2 i, 2 i + 1) for kInterleaved, as GPT-J does.
// Tables hold one cosine and one sine a pair: of the common tables whose second half repeats the first, the first half is meant.
// Method: fp32, one product and one fused multiply-add each; bf16 is rounded once. Errors against ref/rotary.cpp, in doubles: one unit in
// the last place of |x cos| + |y sin|. NaN and infinities go where the formulas take them, and into no other pair.
// The result does not depend on the number of threads.
// Thread rule: may be called concurrently. Any alignment of whole elements will do. Takes no memory.
#pragma once

#include <cstdint>

#include "configs/base/isa.h"
#include "kernels/dtype.h"
#include "kernels/parallel.h"

namespace ipexrun::kernels {

enum class RotaryPairs : int { kHalves = 0, kInterleaved = 1 };

/// Where row (batch, position, head) begins: strides in elements, so that both [batch, positions, heads, depth] and
/// [batch, heads, positions, depth] will do. The elements of a row are adjacent.
struct RotaryStrides {
  std::int64_t batch = 0;
  std::int64_t position = 0;
  std::int64_t head = 0;
};

struct RotaryArgs {
  const void* from = nullptr;
  void* to = nullptr;         ///< may be `from` with the same strides, must not overlap it otherwise; its own rows do not overlap
  DType dtype = DType::kF32;  ///< of both sides
  std::int64_t batch = 0;
  std::int64_t positions = 0;
  std::int64_t heads = 0;
  std::int64_t depth = 0;
  std::int64_t rotated = 0;  ///< even, at most depth
  RotaryStrides from_strides;
  RotaryStrides to_strides;
  RotaryPairs pairs = RotaryPairs::kHalves;
  const void* cos = nullptr;  ///< rotated / 2 numbers for each position
  const void* sin = nullptr;
  DType table_dtype = DType::kF32;
  std::int64_t table_batch_stride = 0;  ///< elements; 0: the same positions for all of the batch
  std::int64_t table_position_stride = 0;
  bool inverse = false;  ///< rotates back, as a gradient is
};

/// True when `isa` has a variant that is worth offering: not the reference.
bool rotary_supported(IsaSet isa);

/// Uses at most `isa`; falls back to slower variants down to the reference, so it is always right. False, and nothing written, when
/// `rotated` is odd, negative or above `depth`.
bool rotary(const RotaryArgs& args, const Parallel& parallel, IsaSet isa);

/// Name of the variant that rotary() uses: "avx512", "avx2", "ref".
const char* rotary_variant(IsaSet isa);

}  // namespace ipexrun::kernels
