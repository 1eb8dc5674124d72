// The table of pool_last; see variants.cpp.
#include "kernels/pool_last_variants.h"

#include "kernels/ref/pool_last.h"
#ifdef IPEXRUN_KERNELS_SIMD
#include "kernels/simd/pool_last.h"
#endif

namespace ipexrun::kernels {
namespace {

constexpr PoolLastVariant kPoolLast[] = {
#ifdef IPEXRUN_KERNELS_AVX512
    {"avx512", kLevelAvx512, avx512::max_pool_last, avx512::average_pool_last},
#endif
#ifdef IPEXRUN_KERNELS_AVX2
    {"avx2", kLevelAvx2, avx2::max_pool_last, avx2::average_pool_last},
#endif
    {"ref", 0, ref::max_pool_last, ref::average_pool_last},
};

}  // namespace

PoolLastVariants pool_last_variants() { return {kPoolLast, sizeof(kPoolLast) / sizeof(kPoolLast[0])}; }

}  // namespace ipexrun::kernels
