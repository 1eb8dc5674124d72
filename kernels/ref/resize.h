// The reference variant of resize, see dispatch.h.
#pragma once

#include "kernels/resize.h"

namespace ipexrun::kernels::ref {

void resize(const ResizeArgs& args, std::int64_t row_begin, std::int64_t row_end, void* scratch);

}  // namespace ipexrun::kernels::ref
