// pool: the largest or the mean of each window of planes [height, width], fp32 or bf16 on both sides.
//
// Methods, in simd/pool.cpp: a row of the input is laid out by its columns modulo the stride, with padding at both ends, so that a
// column of many windows is one load. The elements of a window are met row by row, as in stock: the first of equal ones is the
// largest, the last NaN wins, and a sum has stock's bits (fp32, divided, rounded to bf16 once). The adaptive mean adds down the
// columns first, in fp32. The truth is ref/pool.cpp.
// Thread rule: may be called concurrently. Any alignment of whole elements will do. Each call may take scratch (thread-local, bounded
// by scratch.h); when there is none, or more than 64 MiB are wanted, it returns false and the result is undefined.
#pragma once

#include <cstdint>

#include "configs/base/isa.h"
#include "kernels/dtype.h"
#include "kernels/parallel.h"

namespace ipexrun::kernels {

/// Along one dimension: output i begins at i * stride - pad.
struct PoolWindow {
  std::int64_t size = 1;
  std::int64_t stride = 1;
  std::int64_t pad = 0;
  std::int64_t dilation = 1;  ///< means have none
};

struct PoolArgs {
  const void* from = nullptr;
  void* to = nullptr;
  std::int64_t* indices = nullptr;  ///< of the largest ones, in the plane: row * width + column. Means have none
  DType dtype = DType::kF32;        ///< of both sides
  std::int64_t planes = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;  ///< height * width < 2^31
  std::int64_t out_height = 0;
  std::int64_t out_width = 0;
  PoolWindow down;             ///< of rows
  PoolWindow across;           ///< of columns
  bool count_padding = false;  ///< whether a mean counts padded elements, as zeros
  std::int64_t divisor = 0;    ///< of every sum; 0 = as many as a window has, below 2^24
};

/// True when `isa` has a variant that is worth offering: not the reference.
bool pool_supported(IsaSet isa);

// All use at most `isa` and fall back to slower variants down to the reference, so they are always right.
bool max_pool(const PoolArgs& args, const Parallel& parallel, IsaSet isa);
bool average_pool(const PoolArgs& args, const Parallel& parallel, IsaSet isa);

/// The mean over windows [floor(i * size / out), ceil((i + 1) * size / out)) of both dimensions; `down` and `across` are not read.
bool adaptive_average_pool(const PoolArgs& args, const Parallel& parallel, IsaSet isa);

/// Name of the variant that all use: "avx512", "avx2", "ref".
const char* pool_variant(IsaSet isa);

}  // namespace ipexrun::kernels
