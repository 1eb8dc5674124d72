// What this library was built with.
#pragma once

#include "configs/base/isa.h"

namespace ipexrun::kernels {

/// The instruction sets that have variants here: an older compiler leaves some out.
IsaSet isa_of_build();

}  // namespace ipexrun::kernels
