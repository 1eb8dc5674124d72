// The variants made from simd/dropout.cpp, one namespace an instruction set; see dispatch.h.
#pragma once

#include "kernels/dropout.h"

namespace ipexrun::kernels::avx2 {
void dropout(const DropoutArgs& args);
void dropout_grad(const DropoutGradArgs& args);
}  // namespace ipexrun::kernels::avx2
namespace ipexrun::kernels::avx512 {
void dropout(const DropoutArgs& args);
void dropout_grad(const DropoutGradArgs& args);
}  // namespace ipexrun::kernels::avx512
