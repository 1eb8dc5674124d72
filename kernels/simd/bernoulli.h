// The variants made from simd/bernoulli.cpp, one namespace an instruction set; see dispatch.h.
#pragma once

#include "kernels/bernoulli_variants.h"

namespace ipexrun::kernels::avx2 {
void bernoulli(const BernoulliArgs& args, std::uint64_t limit, Twister* twister);
}
namespace ipexrun::kernels::avx512 {
void bernoulli(const BernoulliArgs& args, std::uint64_t limit, Twister* twister);
}
