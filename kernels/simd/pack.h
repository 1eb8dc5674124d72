// The variants made from simd/pack.cpp, one namespace an instruction set; see dispatch.h.
#pragma once

#include <cstdint>

#include "kernels/linear.h"

namespace ipexrun::kernels::avx2 {
void pack_panel(const MatrixB& b, std::int64_t panel, std::uint16_t* to);
}
namespace ipexrun::kernels::avx512 {
void pack_panel(const MatrixB& b, std::int64_t panel, std::uint16_t* to);
}
