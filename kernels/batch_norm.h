// batch_norm: batch norm in training, with a sum and relu behind it, and its gradient, of images whose channels are adjacent (channels
// last); fp32 or bf16 on both sides, statistics always in fp32 and double.
//
// Images are rows of channels: [rows, channels], rows = images * height * width. Forward in two passes over memory: moments of each
// channel, then act((x - mean) * scale + shift + residual). Backward in two: the sum of g and of g * (x - mean), where g is the gradient in
// front of relu, then by_grad * g + by_from * (x - mean) + constant. Relu's sign is read from its result where one is given, else the norm
// is computed again, which costs less than the memory.
//
// Method, in simd/batch_norm.cpp: vectors of channels, rows in groups whose sums stay in registers, sums of 128 rows in fp32, those in
// double. Moments are of x - x of a row that is no outlier, so that a large mean costs no digits (Chan, Golub, LeVeque: shifted data). Rows
// are summed in blocks that depend on the sizes alone: bits do not depend on the number of threads. NaN passes relu as in stock.
// The truth is ref/batch_norm.cpp, in doubles.
// Thread rule: may be called concurrently. Any alignment of whole elements will do. What sums returns false when memory is short.
#pragma once

#include <cstdint>

#include "configs/base/isa.h"
#include "kernels/dtype.h"
#include "kernels/parallel.h"

namespace ipexrun::kernels {

struct BatchMomentsArgs {
  const void* from = nullptr;
  DType dtype = DType::kF32;
  std::int64_t rows = 0;  ///< at least 1
  std::int64_t channels = 0;
  double* mean = nullptr;      ///< [channels]
  double* variance = nullptr;  ///< [channels], divided by `rows`
};

struct BatchNormArgs {
  const void* from = nullptr;
  const void* residual = nullptr;  ///< null = none
  void* to = nullptr;              ///< must not overlap anything else
  DType dtype = DType::kF32;       ///< of all three
  std::int64_t rows = 0;
  std::int64_t channels = 0;
  bool relu = false;
  const float* mean = nullptr;   ///< [channels], as the next two
  const float* scale = nullptr;  ///< weight / sqrt(variance + eps)
  const float* shift = nullptr;  ///< bias
};

struct BatchNormGradArgs {
  const void* grad = nullptr;
  const void* from = nullptr;
  const void* result = nullptr;  ///< of relu; null = computed again, which is right where nothing was added before relu
  DType dtype = DType::kF32;     ///< of all that lie as images do
  std::int64_t rows = 0;
  std::int64_t channels = 0;
  bool relu = false;
  const float* mean = nullptr;  ///< [channels], as all that follow; scale and shift as in BatchNormArgs, read where `result` is computed
  const float* scale = nullptr;
  const float* shift = nullptr;
  // batch_norm_grad_sums() writes:
  double* sum = nullptr;      ///< of g
  double* product = nullptr;  ///< of g * (x - mean)
  // batch_norm_grad() reads and writes:
  const float* by_grad = nullptr;
  const float* by_from = nullptr;
  const float* constant = nullptr;
  void* to = nullptr;
  void* before_relu = nullptr;  ///< g itself, the gradient of what was added; null = not wanted
};

/// True when `isa` has a variant that is worth offering: not the reference.
bool batch_norm_supported(IsaSet isa);

// All use at most `isa` and fall back to slower variants down to the reference, so they are always right.
bool batch_moments(const BatchMomentsArgs& args, const Parallel& parallel, IsaSet isa);
void batch_norm(const BatchNormArgs& args, const Parallel& parallel, IsaSet isa);
bool batch_norm_grad_sums(const BatchNormGradArgs& args, const Parallel& parallel, IsaSet isa);
void batch_norm_grad(const BatchNormGradArgs& args, const Parallel& parallel, IsaSet isa);

/// Name of the variant that all use: "avx512_bf16", "avx512", "avx2", "ref".
const char* batch_norm_variant(IsaSet isa);

}  // namespace ipexrun::kernels
