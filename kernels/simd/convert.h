// The variants made from simd/convert.cpp, one namespace an instruction set; see dispatch.h.
#pragma once

#include "kernels/convert.h"

namespace ipexrun::kernels::avx2 {
void convert(const ConvertArgs& args);
}
namespace ipexrun::kernels::avx512 {
void convert(const ConvertArgs& args);
}
