// What variants of bernoulli are. Plain data: see dispatch.h.
#pragma once

#include "kernels/bernoulli.h"
#include "kernels/dispatch.h"

namespace ipexrun::kernels {

struct BernoulliVariant {
  const char* name;
  IsaSet needs;
  /// An element is one where its 53 bits are below `limit`.
  void (*run)(const BernoulliArgs& args, std::uint64_t limit, Twister* twister);
};

using BernoulliVariants = Variants<BernoulliVariant>;
BernoulliVariants bernoulli_variants();

}  // namespace ipexrun::kernels
