// topk: the largest or smallest k elements of each row of a dense [rows, columns] matrix of fp32, in order, with their places.
//
// One pass over a row keeps what is not below the k-th best seen so far. NaN counts as the largest, 0 and -0 as equal, as in stock.
// Which of several equal elements stock returns, and in which order, depends on its sorting algorithm: a row where that matters (equal
// ones among the k, or the last of them equal to one that is left out) makes the call fail, and stock must answer it.
// Thread rule: may be called concurrently. Any alignment of whole elements will do.
#pragma once

#include <cstdint>

#include "configs/base/isa.h"
#include "kernels/parallel.h"

namespace ipexrun::kernels {

struct TopkArgs {
  const float* from = nullptr;
  float* values = nullptr;          ///< [rows, k]
  std::int64_t* indices = nullptr;  ///< [rows, k]
  std::int64_t rows = 0;
  std::int64_t columns = 0;  ///< below 2^31
  std::int64_t k = 0;        ///< at most columns
  bool largest = true;
};

/// True when `isa` has a variant that is worth offering: not the reference.
bool topk_supported(IsaSet isa);

/// Uses at most `isa` and falls back to slower variants down to the reference. False when equal elements matter, or memory is short;
/// the result is undefined then.
bool topk(const TopkArgs& args, const Parallel& parallel, IsaSet isa);

/// Name of the variant that topk() uses: "avx512", "avx2", "ref".
const char* topk_variant(IsaSet isa);

}  // namespace ipexrun::kernels
