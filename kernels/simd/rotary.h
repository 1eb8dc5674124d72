// The variants made from simd/rotary.cpp, one namespace an instruction set; see dispatch.h.
#pragma once

#include "kernels/rotary.h"

namespace ipexrun::kernels::avx2 {
void rotary(const RotaryArgs& args, bool heads_outside, std::int64_t row_begin, std::int64_t row_end);
}
namespace ipexrun::kernels::avx512 {
void rotary(const RotaryArgs& args, bool heads_outside, std::int64_t row_begin, std::int64_t row_end);
}
