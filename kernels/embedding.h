// embedding_bag: for each bag, a stretch of `indices`, the sum, the mean or the largest elements of the rows of a table that it names.
//
// The arithmetic is that of stock, bit by bit: fp32 sums in the order of the indices, with fused multiply-adds where rows have weights;
// means are the rounded sum divided by the size as a number of the table's dtype; of equal elements the largest is the first, a NaN stays
// only where it comes first. bf16 sums are fp32 rounded once: ties away from zero without `padding`, to even with it.
// Indices and offsets are looked at before memory is read through them: one out of range makes the call fail.
// Thread rule: may be called concurrently. Any alignment of whole elements will do.
#pragma once

#include <cstdint>

#include "configs/base/isa.h"
#include "kernels/dtype.h"
#include "kernels/parallel.h"

namespace ipexrun::kernels {

enum class BagMode : int { kSum = 0, kMean = 1, kMax = 2 };

struct EmbeddingBagArgs {
  const void* table = nullptr;  ///< [rows, columns], elements of a row adjacent
  std::int64_t rows = 0;        ///< below 2^31
  std::int64_t columns = 0;
  std::int64_t row_stride = 0;  ///< in elements
  DType dtype = DType::kF32;    ///< of the table, the weights and the result
  BagMode mode = BagMode::kSum;
  bool wide = true;               ///< all integers have 64 bits, else 32
  const void* indices = nullptr;  ///< [count]
  std::int64_t count = 0;
  const void* offsets = nullptr;  ///< where each bag begins: [bags], or [bags + 1] where the end of the last is among them
  std::int64_t bags = 0;
  bool has_end = false;
  const void* weights = nullptr;  ///< [count], for sums without `padding`; null = 1
  std::int64_t padding = -1;      ///< an index that counts for nothing; negative = none

  void* to = nullptr;      ///< [bags, columns]
  void* bag_of = nullptr;  ///< [count]: the bag of each index; null = not wanted
  void* sizes = nullptr;   ///< [bags]: indices but for the padding; null = not wanted
  void* places = nullptr;  ///< [bags, columns], for kMax: the row of each element
};

/// True when `isa` has a variant that is worth offering: not the reference.
bool embedding_bag_supported(IsaSet isa);

/// Uses at most `isa` and falls back to slower variants down to the reference. False when an index or an offset is out of range, or
/// offsets fall, or do not begin at 0 and end at `count`; the results are undefined then.
bool embedding_bag(const EmbeddingBagArgs& args, const Parallel& parallel, IsaSet isa);

/// Name of the variant that embedding_bag() uses: "avx512", "avx2", "ref".
const char* embedding_bag_variant(IsaSet isa);

}  // namespace ipexrun::kernels
