// resize: planes [height, width] to other sizes, fp32 or bf16 on both sides: out = sum of taps of rows and columns, in that order: a row
// of the input is stretched once, then rows are mixed. What the taps are (nearest, linear, cubic) is the caller's.
//
// With one tap an axis elements are copied; else all taps count, those of weight 0 too (0 * inf is NaN, as in stock). Sums in fp32 with
// fused multiply-adds. The truth is ref/resize.cpp, in doubles.
// Thread rule: may be called concurrently. Any alignment of whole elements will do. Each call may take scratch (thread-local, bounded
// by scratch.h); when there is none it returns false and the result is undefined.
#pragma once

#include <cstdint>

#include "configs/base/isa.h"
#include "kernels/dtype.h"
#include "kernels/parallel.h"

namespace ipexrun::kernels {

/// Tables have this many entries a tap, or a multiple; entries behind the last output are read and must be places as well.
inline constexpr std::int64_t kResizePadding = 16;
inline constexpr int kMaxResizeTaps = 4;

/// One dimension: output i is the sum over t of weights[t * pitch + i] * input[places[t * pitch + i]]. The places of an output are no
/// further apart than there are taps.
struct ResizeAxis {
  std::int64_t size = 0;  ///< of the input, below 2^31
  std::int64_t outputs = 0;
  std::int64_t pitch = 0;  ///< outputs, padded
  int taps = 1;            ///< at most kMaxResizeTaps
  const std::int32_t* places = nullptr;
  const float* weights = nullptr;  ///< null: one tap of weight 1
};

struct ResizeArgs {
  const void* from = nullptr;
  void* to = nullptr;
  DType dtype = DType::kF32;  ///< of both sides
  std::int64_t planes = 0;
  ResizeAxis down;    ///< of rows
  ResizeAxis across;  ///< of columns; both have weights, or neither has
};

/// True when `isa` has a variant that is worth offering: not the reference.
bool resize_supported(IsaSet isa);

/// Uses at most `isa` and falls back to slower variants down to the reference, so it is always right.
bool resize(const ResizeArgs& args, const Parallel& parallel, IsaSet isa);

/// Name of the variant that resize() uses: "avx512", "avx2", "ref".
const char* resize_variant(IsaSet isa);

}  // namespace ipexrun::kernels
