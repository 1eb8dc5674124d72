// The variants made from simd/gated.cpp, one namespace an instruction set; see dispatch.h.
#pragma once

#include "kernels/gated.h"

namespace ipexrun::kernels::avx2 {
void gated(const GatedArgs& args);
}
namespace ipexrun::kernels::avx512 {
void gated(const GatedArgs& args);
}
