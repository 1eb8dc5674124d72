// Shares the elements among the workers. Compiled for the base instruction set.
#include "kernels/masked.h"

#include <algorithm>

#include "kernels/choose.h"
#include "kernels/masked_variants.h"
#include "kernels/packed.h"
#include "kernels/ref/masked.h"
#include "kernels/share.h"
#ifdef IPEXRUN_KERNELS_SIMD
#include "kernels/simd/masked.h"
#endif

namespace ipexrun::kernels {
namespace {

/// Elements of which a worker takes a whole number: a cache line of masks.
constexpr std::int64_t kUnit = 64;
/// Below this many elements a call is shorter than waking a second worker.
constexpr std::int64_t kSerialElements = 1 << 16;

constexpr MaskedVariant kMasked[] = {
#ifdef IPEXRUN_KERNELS_AVX512
    {"avx512", kLevelAvx512, avx512::masked},
#endif
#ifdef IPEXRUN_KERNELS_AVX2
    {"avx2", kLevelAvx2, avx2::masked},
#endif
    {"ref", 0, ref::masked},
};

}  // namespace

MaskedVariants masked_variants() { return {kMasked, sizeof(kMasked) / sizeof(kMasked[0])}; }

void masked(const MaskedArgs& args, const Parallel& parallel, IsaSet isa) {
  if (args.n <= 0) return;
  const MaskedVariant& variant = choose(masked_variants(), isa);
  const std::int64_t units = ceil_div(args.n, kUnit);
  const std::int64_t parts = parts_of(units, args.n > kSerialElements, parallel);
  share(parts, 0, parallel, [&](std::int64_t part, void*) {
    const std::int64_t begin = begin_of(units, part, parts) * kUnit;
    const std::int64_t end = std::min(begin_of(units, part + 1, parts) * kUnit, args.n);
    MaskedArgs slice = args;
    slice.from = static_cast<const char*>(args.from) + begin * bytes_of(args.dtype);
    slice.mask = args.mask + begin;
    slice.to = static_cast<char*>(args.to) + begin * bytes_of(args.dtype);
    slice.n = end - begin;
    variant.run(slice);
    return true;
  });
}

bool masked_supported(IsaSet isa) { return choose(masked_variants(), isa).needs != 0; }

const char* masked_variant(IsaSet isa) { return choose(masked_variants(), isa).name; }

}  // namespace ipexrun::kernels
