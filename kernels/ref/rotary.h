// The reference variant of rotary, see dispatch.h.
#pragma once

#include "kernels/rotary.h"

namespace ipexrun::kernels::ref {

void rotary(const RotaryArgs& args, bool heads_outside, std::int64_t row_begin, std::int64_t row_end);

}  // namespace ipexrun::kernels::ref
