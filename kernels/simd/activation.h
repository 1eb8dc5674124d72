// The variants made from simd/activation.cpp, one namespace an instruction set; see dispatch.h.
#pragma once

#include "kernels/activation.h"

namespace ipexrun::kernels::avx2 {
void activation(const ActivationArgs& args);
}
namespace ipexrun::kernels::avx512 {
void activation(const ActivationArgs& args);
}
