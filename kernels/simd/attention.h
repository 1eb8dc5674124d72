// The variants made from simd/attention.cpp and simd/attention_few.cpp, one namespace an instruction set; see dispatch.h.
#pragma once

#include "kernels/dispatch.h"

#define IPEXRUN_DECLARE_ATTENTION(isa)                                                                                                  \
  namespace ipexrun::kernels::isa {                                                                                                     \
  void attention(const AttentionArgs& args, const AttentionPlan& plan, std::int64_t unit_begin, std::int64_t unit_end, float* scratch); \
  void attention_few(const AttentionArgs& args, std::int64_t unit_begin, std::int64_t unit_end, float* scratch);                        \
  }
IPEXRUN_DECLARE_ATTENTION(avx2)
IPEXRUN_DECLARE_ATTENTION(avx512)
IPEXRUN_DECLARE_ATTENTION(avx512_bf16)
#undef IPEXRUN_DECLARE_ATTENTION
