// The reference variant of batch_norm, see dispatch.h.
#pragma once

#include "kernels/batch_norm_variants.h"

namespace ipexrun::kernels::ref {

void batch_moments(const PivotedMomentsArgs& args, std::int64_t begin, std::int64_t end, double* sums, float* scratch);
void batch_norm(const BatchNormArgs& args, std::int64_t begin, std::int64_t end);
void batch_norm_grad_sums(const BatchNormGradArgs& args, std::int64_t begin, std::int64_t end, double* sums, float* scratch);
void batch_norm_grad(const BatchNormGradArgs& args, std::int64_t begin, std::int64_t end);

}  // namespace ipexrun::kernels::ref
