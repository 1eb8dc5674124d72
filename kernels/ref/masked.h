// The reference variant of masked, see dispatch.h.
#pragma once

#include "kernels/masked_variants.h"

namespace ipexrun::kernels::ref {

void masked(const MaskedArgs& args);

}  // namespace ipexrun::kernels::ref
