// From the names of compiled variants to instruction sets: what a build has, beside what the CPU has (isa.h).
#pragma once

#include <string_view>

#include "configs/base/isa.h"

namespace ipexrun {

/// The instruction sets of variants named as in kernels/CMakeLists.txt, separated by spaces; unknown words count for nothing.
IsaSet isa_of_variants(std::string_view words);

}  // namespace ipexrun
