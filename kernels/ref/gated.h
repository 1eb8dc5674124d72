// The reference variant of gated, see dispatch.h.
#pragma once

#include "kernels/gated.h"

namespace ipexrun::kernels::ref {

void gated(const GatedArgs& args);

}  // namespace ipexrun::kernels::ref
