// cross_entropy: the loss of rows of logits over a large vocabulary, with its gradient; log-softmax and what follows are never stored.
//
// Of row i with target t, weights w (1 where none are given), smoothing e and V columns:
//   loss = (1 - e) w_t (lse - x_t) + e / V sum_j w_j (lse - x_j), lse = log sum_j exp x_j;
// 0 where t is `ignored`. kSum adds the rows up, kMean divides that by the sum of w_t of the rows that count (NaN when none does).
// Methods, in simd/cross_entropy.cpp: a block of a row after the other, each read from memory once: the largest so far, then exponentials
// as in normalize.h, summed in fp32 within a block and in double over the blocks. The gradient takes one pass: exp(x - lse) and a product.
// The truth is ref/cross_entropy.cpp, in doubles. Errors against it: losses 1e-6 of lse - (smallest x that counts), gradients (before bf16
// is rounded) 1e-6 (1 + |lse|) of each softmax, from lse in fp32; a softmax below the smallest normal fp32 is 0.
// NaN, +inf, or nothing but -inf in a row make its loss and gradient NaN, as in stock; a single -inf is an ordinary column of weight 0.
// The results do not depend on the number of threads.
// Thread rule: may be called concurrently. Any alignment of whole elements will do. A row is not cut among threads.
#pragma once

#include <cstdint>

#include "configs/base/isa.h"
#include "kernels/dtype.h"
#include "kernels/parallel.h"

namespace ipexrun::kernels {

enum class Reduction : int { kNone = 0, kSum = 1, kMean = 2 };

/// What loss and gradient have in common.
struct CrossEntropyRows {
  const void* logits = nullptr;
  DType dtype = DType::kF32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t row_stride = 0;            ///< elements
  const std::int64_t* targets = nullptr;  ///< [rows]
  std::int64_t ignored = -100;
  const void* weight = nullptr;  ///< [columns], null = ones
  DType weight_dtype = DType::kF32;
  double smoothing = 0;  ///< in [0, 1]
};

struct CrossEntropyArgs : CrossEntropyRows {
  Reduction reduction = Reduction::kMean;
  void* loss = nullptr;  ///< [rows] for kNone, else [1]
  DType loss_dtype = DType::kF32;
  float* lse = nullptr;       ///< [rows], of ignored rows as well; null = not wanted
  double* divisor = nullptr;  ///< [1], what kMean divides by; null = not wanted
};

struct CrossEntropyGradArgs : CrossEntropyRows {
  const float* lse = nullptr;  ///< [rows], from the loss
  const void* loss_grad = nullptr;
  DType loss_grad_dtype = DType::kF32;
  std::int64_t loss_grad_stride = 0;  ///< 1 after kNone, else 0
  double divisor = 1;                 ///< after kMean what the loss gave
  void* grad = nullptr;               ///< [rows, columns] in dtype; may be `logits` with the same distance between rows
  std::int64_t grad_stride = 0;       ///< elements
};

/// True when `isa` has a variant that is worth offering: not the reference.
bool cross_entropy_supported(IsaSet isa);

// Both use at most `isa` and fall back to slower variants down to the reference, so they are always right. False, and nothing written, when
// a target that is not `ignored` is not a column, or when memory for 8 bytes a row is short.
bool cross_entropy(const CrossEntropyArgs& args, const Parallel& parallel, IsaSet isa);
bool cross_entropy_grad(const CrossEntropyGradArgs& args, const Parallel& parallel, IsaSet isa);

/// Name of the variant that both use: "avx512", "avx2", "ref".
const char* cross_entropy_variant(IsaSet isa);

}  // namespace ipexrun::kernels
