// What variants of batch_norm are. Plain data: see dispatch.h.
#pragma once

#include "kernels/batch_norm.h"
#include "kernels/dispatch.h"

namespace ipexrun::kernels {

/// Moments are of x - pivot.
struct PivotedMomentsArgs : BatchMomentsArgs {
  const float* pivots = nullptr;  ///< [channels]
};

struct BatchNormVariant {
  const char* name;
  IsaSet needs;
  // Rows [begin, end). `sums` [2, channels] is written: of x - pivot and of its square; or of g and of g * (x - mean). `scratch` has room
  // for 2 * channels + 64 floats.
  void (*moments)(const PivotedMomentsArgs& args, std::int64_t begin, std::int64_t end, double* sums, float* scratch);
  void (*norm)(const BatchNormArgs& args, std::int64_t begin, std::int64_t end);
  void (*grad_sums)(const BatchNormGradArgs& args, std::int64_t begin, std::int64_t end, double* sums, float* scratch);
  void (*grad)(const BatchNormGradArgs& args, std::int64_t begin, std::int64_t end);
};

using BatchNormVariants = Variants<BatchNormVariant>;
BatchNormVariants batch_norm_variants();

}  // namespace ipexrun::kernels
