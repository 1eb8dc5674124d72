// The reference variant of linear_int8, see dispatch.h.
#pragma once

#include <cstdint>

#include "kernels/dtype.h"

namespace ipexrun::kernels::ref {

void int8_dot(const float* a, std::int64_t lda, std::int64_t rows, const std::int8_t* b, std::int64_t ldb, std::int64_t columns,
              std::int64_t k, float* sums);
void int8_finish(const float* sums, const float* scales, std::int64_t n, DType dtype, void* to);

}  // namespace ipexrun::kernels::ref
