// The variants of batched, see dispatch.h for how one is chosen. Plain data.
#pragma once

#include "kernels/batched.h"
#include "kernels/dispatch.h"
#include "kernels/linear_f32_variants.h"

namespace ipexrun::kernels {

/// Where finished sums go: alpha * sum + beta * c, from the first row and column on that a function is called for.
struct BatchedPlace {
  char* out = nullptr;
  DType out_dtype = DType::kF32;
  std::int64_t ldo = 0;
  const char* c = nullptr;  ///< null = none
  DType c_dtype = DType::kF32;
  std::int64_t c_row = 0;
  std::int64_t c_column = 0;
  float alpha = 1;
  float beta = 1;
};

/// Few rows of one matrix times B where it lies.
struct BatchedRows {
  const float* a = nullptr;  ///< rows of K adjacent elements
  std::int64_t lda = 0;
  const void* b = nullptr;
  DType b_dtype = DType::kF32;
  std::int64_t ldb = 0;  ///< elements between rows of B whose columns are adjacent, or for dots() between columns whose rows are
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t k = 0;
  BatchedPlace to;
};

/// What becomes panels of packed.h: `panels` of them from B's first column on, of which `columns` exist.
struct BatchedPanels {
  const char* b = nullptr;
  DType dtype = DType::kF32;
  std::int64_t row = 0;  ///< strides of B, of which one is 1
  std::int64_t column = 0;
  std::int64_t k = 0;
  std::int64_t columns = 0;
  char* to = nullptr;
};

/// Rows of A, bf16 or fp32 that is rounded to it, times panels of packed.h, for the whole of K.
struct BatchedTiles {
  const void* a = nullptr;
  DType a_dtype = DType::kF32;
  std::int64_t lda = 0;
  std::int64_t rows = 0;
  std::int64_t k = 0;
  const char* b = nullptr;
  std::int64_t columns = 0;
  BatchedPlace to;
  char* scratch = nullptr;  ///< 64-byte aligned
};

struct BatchedVariant {
  const char* name;
  IsaSet needs;
  /// Sums over K as it comes; `columns` of B are adjacent.
  void (*rows)(const BatchedRows& args);
  /// Dot products; the rows of B are adjacent.
  void (*dots)(const BatchedRows& args);
  /// Rows of adjacent elements as fp32.
  void (*widen)(const void* from, DType dtype, std::int64_t stride, std::int64_t rows, std::int64_t columns, float* to, std::int64_t ld);
  /// Sums of `rows` rows, `ld` apart, to their place.
  void (*finish)(const float* sums, std::int64_t ld, std::int64_t rows, std::int64_t columns, const BatchedPlace& to);
  void (*transpose)(const TransposeBlock& block);
  const LinearF32Variant* blocks;
  /// bf16 products, null where they are not native, and what packs B for them.
  const LinearVariant* tiles;
  void (*pack)(const BatchedPanels& args);
  /// What a short K takes instead of `tiles`, null for none: its scratch, and what a worker calls before the first and after the last.
  void (*short_tiles)(const BatchedTiles& args);
  std::int64_t (*short_tiles_bytes)(std::int64_t k);
  void (*short_tiles_begin)();
  void (*short_tiles_end)();
};

using BatchedVariants = Variants<BatchedVariant>;
/// The reference has a name only: batched() calls ref::batched().
BatchedVariants batched_variants();

}  // namespace ipexrun::kernels
