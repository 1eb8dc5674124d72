// The reference variant of attention, see dispatch.h.
#pragma once

#include "kernels/attention.h"

namespace ipexrun::kernels::ref {

void attention(const AttentionArgs& args, std::int64_t unit_begin, std::int64_t unit_end, float* scratch);

}  // namespace ipexrun::kernels::ref
