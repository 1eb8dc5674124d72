// The variants made from simd/masked.cpp, one namespace an instruction set; see dispatch.h.
#pragma once

#include "kernels/masked_variants.h"

namespace ipexrun::kernels::avx2 {
void masked(const MaskedArgs& args);
}
namespace ipexrun::kernels::avx512 {
void masked(const MaskedArgs& args);
}
