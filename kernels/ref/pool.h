// The reference variant of pool, see dispatch.h.
#pragma once

#include "kernels/pool_plan.h"

namespace ipexrun::kernels::ref {

void max_pool(const PoolArgs& args, const PoolPlan& plan, std::int64_t row_begin, std::int64_t row_end, void* scratch);
void average_pool(const PoolArgs& args, const PoolPlan& plan, std::int64_t row_begin, std::int64_t row_end, void* scratch);
void adaptive_pool(const PoolArgs& args, const PoolPlan& plan, std::int64_t row_begin, std::int64_t row_end, void* scratch);

}  // namespace ipexrun::kernels::ref
