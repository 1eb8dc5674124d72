// The variants made from simd/linear.cpp, one namespace an instruction set; see dispatch.h for what the functions mean.
#pragma once

#include "kernels/dispatch.h"

#define IPEXRUN_DECLARE_LINEAR(isa)                                                   \
  namespace ipexrun::kernels::isa {                                                   \
  std::size_t linear_scratch_bytes(const LinearArgs& args, const LinearBlock& block); \
  void linear(const LinearArgs& args, const LinearBlock& block, void* scratch);       \
  }
IPEXRUN_DECLARE_LINEAR(avx2)
IPEXRUN_DECLARE_LINEAR(avx512)
IPEXRUN_DECLARE_LINEAR(avx512_bf16)
#undef IPEXRUN_DECLARE_LINEAR
