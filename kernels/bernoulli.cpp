// Chooses the variant of bernoulli. Compiled for the base instruction set.
#include "kernels/bernoulli.h"

#include <cmath>

#include "kernels/bernoulli_variants.h"
#include "kernels/choose.h"
#include "kernels/ref/bernoulli.h"
#ifdef IPEXRUN_KERNELS_SIMD
#include "kernels/simd/bernoulli.h"
#endif

namespace ipexrun::kernels {
namespace {

constexpr BernoulliVariant kBernoulli[] = {
#ifdef IPEXRUN_KERNELS_AVX512
    {"avx512", kLevelAvx512, avx512::bernoulli},
#endif
#ifdef IPEXRUN_KERNELS_AVX2
    {"avx2", kLevelAvx2, avx2::bernoulli},
#endif
    {"ref", 0, ref::bernoulli},
};

}  // namespace

BernoulliVariants bernoulli_variants() { return {kBernoulli, sizeof(kBernoulli) / sizeof(kBernoulli[0])}; }

bool bernoulli_supported(IsaSet isa) { return choose(bernoulli_variants(), isa).needs != 0; }

void bernoulli(const BernoulliArgs& args, Twister* twister, IsaSet isa) {
  // x / 2^53 < p for an integer x is x < ceil(p * 2^53); the product is exact.
  const auto limit = static_cast<std::uint64_t>(std::ceil(std::ldexp(args.p, 53)));
  choose(bernoulli_variants(), isa).run(args, limit, twister);
}

const char* bernoulli_variant(IsaSet isa) { return choose(bernoulli_variants(), isa).name; }

}  // namespace ipexrun::kernels
