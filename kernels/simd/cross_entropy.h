// The variants made from simd/cross_entropy.cpp, one namespace an instruction set; see dispatch.h.
#pragma once

#include "kernels/cross_entropy.h"

#define IPEXRUN_DECLARE_CROSS_ENTROPY(isa)                                                                                               \
  namespace ipexrun::kernels::isa {                                                                                                      \
  void cross_entropy_losses(const CrossEntropyArgs& args, double weights, std::int64_t row_begin, std::int64_t row_end, double* losses); \
  void cross_entropy_grads(const CrossEntropyGradArgs& args, double weights, std::int64_t row_begin, std::int64_t row_end);              \
  }
IPEXRUN_DECLARE_CROSS_ENTROPY(avx2)
IPEXRUN_DECLARE_CROSS_ENTROPY(avx512)
#undef IPEXRUN_DECLARE_CROSS_ENTROPY
