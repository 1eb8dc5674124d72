// The variant made from simd/linear_int4.cpp; see dispatch.h.
#pragma once

#include "kernels/linear_int4.h"

namespace ipexrun::kernels::avx512_bf16 {

bool int4_group_sums(const LinearInt4Args& args, float* sums);
void int4_dot(const LinearInt4Args& args, std::int64_t block, std::int64_t row, std::int64_t rows, const float* sums);
void int4_unpack(const LinearInt4Args& args, std::int64_t panel, std::uint16_t* to);

}  // namespace ipexrun::kernels::avx512_bf16
