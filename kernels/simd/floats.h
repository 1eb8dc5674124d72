// Vectors of floats of the instruction set that a source is compiled for.
#pragma once

#if defined(__AVX512F__)
#include "kernels/simd/floats_avx512.h"
#if !defined(IPEXRUN_KERNEL_ISA_AVX512)
namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {
using avx512::Floats;
using avx512::Lanes;
}  // namespace
}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
#endif
#else
#include "kernels/simd/floats_avx2.h"
#endif
