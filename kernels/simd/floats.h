// Vectors of floats of the instruction set that a source is compiled for.
#pragma once

#if defined(IPEXRUN_KERNEL_ISA_AVX512)
#include "kernels/simd/floats_avx512.h"
#else
#include "kernels/simd/floats_avx2.h"
#endif
