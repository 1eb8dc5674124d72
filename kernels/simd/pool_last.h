// The variants made from simd/pool_last.cpp, one namespace an instruction set; see dispatch.h.
#pragma once

#include "kernels/pool_last_variants.h"

#define IPEXRUN_DECLARE_POOL_LAST(isa)                                                    \
  namespace ipexrun::kernels::isa {                                                       \
  void max_pool_last(const PoolLastArgs& args, std::int64_t begin, std::int64_t end);     \
  void average_pool_last(const PoolLastArgs& args, std::int64_t begin, std::int64_t end); \
  }
IPEXRUN_DECLARE_POOL_LAST(avx2)
IPEXRUN_DECLARE_POOL_LAST(avx512)
#undef IPEXRUN_DECLARE_POOL_LAST
