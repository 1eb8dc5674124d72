// pool_last: the largest or the mean of each window of images whose channels are adjacent (channels last), fp32 or bf16 on either side.
//
// Method, in simd/pool_last.cpp: a vector of channels at a time, window by window; a mean is summed in fp32, row by row of its window, then
// over the rows, divided, and rounded once. The elements of a window are met row by row, and the last NaN wins, as in stock. The truth is
// ref/pool_last.cpp. The result of an element does not depend on the number of threads. Thread rule: may be called concurrently. Any
// alignment of whole elements will do.
#pragma once

#include <cstdint>

#include "configs/base/isa.h"
#include "kernels/dtype.h"
#include "kernels/parallel.h"
#include "kernels/pool.h"

namespace ipexrun::kernels {

/// Images [height][width][channels] without gaps.
struct PoolLastArgs {
  const void* from = nullptr;
  DType from_dtype = DType::kF32;
  void* to = nullptr;
  DType to_dtype = DType::kF32;
  std::int64_t images = 0;
  std::int64_t channels = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t out_height = 0;
  std::int64_t out_width = 0;
  PoolWindow down;             ///< of rows; means have no dilation
  PoolWindow across;           ///< of columns
  bool count_padding = false;  ///< whether a mean counts padded elements, as zeros
  std::int64_t divisor = 0;    ///< of every sum; 0 = as many as a window has
};

/// True when `isa` has a variant that is worth offering: not the reference.
bool pool_last_supported(IsaSet isa);

// Both use at most `isa` and fall back to slower variants down to the reference, so they are always right.
void max_pool_last(const PoolLastArgs& args, const Parallel& parallel, IsaSet isa);
/// A window without elements has the mean 0.
void average_pool_last(const PoolLastArgs& args, const Parallel& parallel, IsaSet isa);

/// Name of the variant that both use: "avx512", "avx2", "ref".
const char* pool_last_variant(IsaSet isa);

}  // namespace ipexrun::kernels
