// The AMX bf16 variant of attention, see dispatch.h for what the function means.
#pragma once

#include "kernels/dispatch.h"

namespace ipexrun::kernels::amx {

void attention(const AttentionArgs& args, const AttentionPlan& plan, std::int64_t unit_begin, std::int64_t unit_end, float* scratch);

}  // namespace ipexrun::kernels::amx
