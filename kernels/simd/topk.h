// The variants made from simd/topk.cpp, one namespace an instruction set; see dispatch.h.
#pragma once

#include "kernels/topk.h"

#define IPEXRUN_DECLARE_TOPK(isa)                                                                                                        \
  namespace ipexrun::kernels::isa {                                                                                                      \
  std::int64_t topk_collect(const float* from, std::int64_t begin, std::int64_t end, bool largest, std::int32_t bar, std::int64_t* kept, \
                            std::int64_t limit, std::int64_t* count);                                                                    \
  }
IPEXRUN_DECLARE_TOPK(avx2)
IPEXRUN_DECLARE_TOPK(avx512)
#undef IPEXRUN_DECLARE_TOPK
