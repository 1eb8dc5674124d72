#include "kernels/built.h"

#include "configs/base/isa_variants.h"

namespace ipexrun::kernels {

IsaSet isa_of_build() { return isa_of_variants(IPEXRUN_KERNEL_VARIANT_NAMES); }

}  // namespace ipexrun::kernels
