// normalize: softmax, layer norm and rms norm over the last dimension of a dense [rows, columns] matrix, group norm of images, and the
// scaling of channels that a batch norm with known moments is; fp32 or bf16 on both sides.
//
// Methods, in simd/normalize.cpp, all sums in fp32 over vectors, whatever the type (those of norms in blocks of thousands, which are added
// in double, so that their number costs no digits): softmax subtracts the largest element, takes 2^f
// as activation.h does and multiplies by one reciprocal; layer norm takes the mean, then the mean square of what differs from it (two
// passes over a row that is in L1), so that a large mean costs no digits. The truth is ref/normalize.cpp, in doubles.
// e^x below the smallest normal fp32 is 0. NaN, and in a softmax +inf or nothing but -inf, make a whole row NaN, as in stock.
// A row's bits do not depend on the number of threads.
// Thread rule: may be called concurrently. Any alignment of whole elements will do. Each call may take scratch (thread-local, bounded
// by scratch.h); when there is none it returns false and the result is undefined.
#pragma once

#include <cstdint>

#include "configs/base/isa.h"
#include "kernels/dtype.h"
#include "kernels/parallel.h"

namespace ipexrun::kernels {

struct SoftmaxArgs {
  const void* from = nullptr;
  void* to = nullptr;         ///< may be `from`, must not overlap it otherwise
  DType dtype = DType::kF32;  ///< of both sides
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

/// True when `isa` has a variant that is worth offering: not the reference.
bool normalize_supported(IsaSet isa);

// All use at most `isa` and fall back to slower variants down to the reference, so they are always right.
bool softmax(const SoftmaxArgs& args, const Parallel& parallel, IsaSet isa);

struct NormArgs {
  const void* from = nullptr;
  void* to = nullptr;         ///< may be `from`, must not overlap anything else
  DType dtype = DType::kF32;  ///< of both sides
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  const void* weight = nullptr;  ///< [columns], null = ones
  const void* bias = nullptr;    ///< [columns], null = zeros
  DType parameter_dtype = DType::kF32;
  double eps = 0;
  void* mean = nullptr;  ///< [rows], null = not wanted; rms norm has none
  void* rstd = nullptr;  ///< [rows], null = not wanted
  DType stats_dtype = DType::kF32;
  // Layer norm and rms norm only: what is normalized is from + residual, rounded to `dtype`, as if the sum had been stored first.
  const void* residual = nullptr;  ///< [rows, columns], null = none; `to` may be it
  void* sum = nullptr;             ///< [rows, columns], null = not wanted; may be `from` or `residual` where `to` is not
  // Layer norm and rms norm of fp32 only: the result rounded to bf16, for products that would round it; then `to` may be null = not wanted.
  void* narrow = nullptr;  ///< [rows, columns], null = not wanted; must not overlap anything else
};

/// (x - mean) * rstd * weight + bias with rstd = 1 / sqrt(variance + eps), the variance being divided by `columns`. A row whose
/// variance is beyond fp32 becomes NaN, rstd included: with an rstd of 0 a model that diverges would look sane.
bool layer_norm(const NormArgs& args, const Parallel& parallel, IsaSet isa);

/// x * rstd * weight + bias with rstd = 1 / sqrt(mean square + eps), rounded to bf16 once, at the end.
bool rms_norm(const NormArgs& args, const Parallel& parallel, IsaSet isa);

/// Of images [N, channels, pixels], with groups of neighbouring channels: `rows` are the groups of all images, `columns` the elements of
/// one. Weight and bias are [channels].
struct GroupNormArgs : NormArgs {
  std::int64_t groups = 1;  ///< of an image
  std::int64_t pixels = 1;
};
bool group_norm(const GroupNormArgs& args, const Parallel& parallel, IsaSet isa);

/// x * scale + shift, both [channels]. `columns` = pixels of a plane, `rows` = planes of all images; or `adjacent`: `columns` = channels.
struct ChannelScaleArgs {
  const void* from = nullptr;
  void* to = nullptr;         ///< may be `from`, must not overlap anything else
  DType dtype = DType::kF32;  ///< of both sides
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t channels = 0;
  bool adjacent = false;
  const float* scale = nullptr;
  const float* shift = nullptr;
};
bool scale_channels(const ChannelScaleArgs& args, const Parallel& parallel, IsaSet isa);

/// Name of the variant that all use: "avx512", "avx2", "ref".
const char* normalize_variant(IsaSet isa);

}  // namespace ipexrun::kernels
