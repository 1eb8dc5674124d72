// The reference variant of cross_entropy, see dispatch.h.
#pragma once

#include "kernels/cross_entropy.h"

namespace ipexrun::kernels::ref {

void cross_entropy_losses(const CrossEntropyArgs& args, double weights, std::int64_t row_begin, std::int64_t row_end, double* losses);
void cross_entropy_grads(const CrossEntropyGradArgs& args, double weights, std::int64_t row_begin, std::int64_t row_end);

}  // namespace ipexrun::kernels::ref
