// The reference variant of linear_int4, see dispatch.h.
#pragma once

#include "kernels/linear_int4.h"

namespace ipexrun::kernels::ref {

void int4_dot(const LinearInt4Args& args, std::int64_t block, std::int64_t row, std::int64_t rows, const float* sums);

}  // namespace ipexrun::kernels::ref
