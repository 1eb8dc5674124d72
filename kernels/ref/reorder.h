// The reference variant of reorder, see dispatch.h.
#pragma once

#include "kernels/dispatch.h"

namespace ipexrun::kernels::ref {

void transpose(const TransposeBlock& block);

}  // namespace ipexrun::kernels::ref
