// The variants made from simd/batch_norm.cpp, one namespace an instruction set; see dispatch.h.
#pragma once

#include "kernels/batch_norm_variants.h"

#define IPEXRUN_DECLARE_BATCH_NORM(isa)                                                                                         \
  namespace ipexrun::kernels::isa {                                                                                             \
  void batch_moments(const PivotedMomentsArgs& args, std::int64_t begin, std::int64_t end, double* sums, float* scratch);       \
  void batch_norm(const BatchNormArgs& args, std::int64_t begin, std::int64_t end);                                             \
  void batch_norm_grad_sums(const BatchNormGradArgs& args, std::int64_t begin, std::int64_t end, double* sums, float* scratch); \
  void batch_norm_grad(const BatchNormGradArgs& args, std::int64_t begin, std::int64_t end);                                    \
  }
IPEXRUN_DECLARE_BATCH_NORM(avx2)
IPEXRUN_DECLARE_BATCH_NORM(avx512)
IPEXRUN_DECLARE_BATCH_NORM(avx512_bf16)
#undef IPEXRUN_DECLARE_BATCH_NORM
