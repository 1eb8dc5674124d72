// The variants made from simd/reorder.cpp, one namespace an instruction set; see dispatch.h.
#pragma once

#include "kernels/dispatch.h"

namespace ipexrun::kernels::avx2 {
void transpose(const TransposeBlock& block);
}
namespace ipexrun::kernels::avx512 {
void transpose(const TransposeBlock& block);
}
