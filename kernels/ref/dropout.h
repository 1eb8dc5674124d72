// The reference variant of dropout, see dispatch.h.
#pragma once

#include "kernels/dropout.h"

namespace ipexrun::kernels::ref {

struct PhiloxWords {
  std::uint32_t word[4];
};

/// The four words of a counter under a key.
PhiloxWords philox(PhiloxWords counter, std::uint32_t key0, std::uint32_t key1);

void dropout(const DropoutArgs& args);
void dropout_grad(const DropoutGradArgs& args);

}  // namespace ipexrun::kernels::ref
