// The variants made from simd/pool.cpp, one namespace an instruction set; see dispatch.h.
#pragma once

#include "kernels/pool_plan.h"

#define IPEXRUN_DECLARE_POOL(isa)                                                                                              \
  namespace ipexrun::kernels::isa {                                                                                            \
  void max_pool(const PoolArgs& args, const PoolPlan& plan, std::int64_t row_begin, std::int64_t row_end, void* scratch);      \
  void average_pool(const PoolArgs& args, const PoolPlan& plan, std::int64_t row_begin, std::int64_t row_end, void* scratch);  \
  void adaptive_pool(const PoolArgs& args, const PoolPlan& plan, std::int64_t row_begin, std::int64_t row_end, void* scratch); \
  }
IPEXRUN_DECLARE_POOL(avx2)
IPEXRUN_DECLARE_POOL(avx512)
#undef IPEXRUN_DECLARE_POOL
