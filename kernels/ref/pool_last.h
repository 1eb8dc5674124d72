// The reference variant of pool_last, see dispatch.h.
#pragma once

#include "kernels/pool_last_variants.h"

namespace ipexrun::kernels::ref {

void max_pool_last(const PoolLastArgs& args, std::int64_t begin, std::int64_t end);
void average_pool_last(const PoolLastArgs& args, std::int64_t begin, std::int64_t end);

}  // namespace ipexrun::kernels::ref
