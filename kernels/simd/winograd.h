// The variants made from simd/winograd.cpp, one namespace an instruction set; see winograd_variants.h for what the functions mean.
#pragma once

#include "kernels/winograd_variants.h"

#define IPEXRUN_DECLARE_WINOGRAD(isa)                                                     \
  namespace ipexrun::kernels::isa {                                                       \
  std::size_t winograd_scratch_bytes(const WinogradArgs& args, const LinearBlock& block); \
  bool winograd(const WinogradArgs& args, const LinearBlock& block, void* scratch);       \
  }
IPEXRUN_DECLARE_WINOGRAD(avx2)
IPEXRUN_DECLARE_WINOGRAD(avx512)
IPEXRUN_DECLARE_WINOGRAD(avx512_bf16)
#undef IPEXRUN_DECLARE_WINOGRAD
