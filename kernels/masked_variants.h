// What variants of masked are. Plain data: see dispatch.h.
#pragma once

#include "kernels/dispatch.h"
#include "kernels/masked.h"

namespace ipexrun::kernels {

struct MaskedVariant {
  const char* name;
  IsaSet needs;
  void (*run)(const MaskedArgs& args);
};

using MaskedVariants = Variants<MaskedVariant>;
MaskedVariants masked_variants();

}  // namespace ipexrun::kernels
