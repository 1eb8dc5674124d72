// The reference variant of attention, see dispatch.h.
#pragma once

#include "kernels/attention.h"

namespace ipexrun::kernels::ref {

void attention(const AttentionArgs& args, std::int64_t head_begin, std::int64_t head_end, float* scratch);

}  // namespace ipexrun::kernels::ref
