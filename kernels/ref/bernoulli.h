// The reference variant of bernoulli, see dispatch.h.
#pragma once

#include "kernels/bernoulli_variants.h"

namespace ipexrun::kernels::ref {

void bernoulli(const BernoulliArgs& args, std::uint64_t limit, Twister* twister);

}  // namespace ipexrun::kernels::ref
