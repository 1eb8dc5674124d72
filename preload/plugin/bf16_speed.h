// Whether this CPU multiplies matrices faster in bf16 than in float32. That it has instructions for it does not say so: the AVX512-BF16 of
// one kind of core does twice the work of float32's in a cycle, that of another half of it (docs/performance.md, "bf16 without AMX").
#pragma once

#include "configs/base/isa.h"

namespace ipexrun::preload {

/// How many times as fast a product is in bf16 as in float32, by our kernels, operands in the caches, on the calling thread. Measured by
/// the first call (less than 2 ms of its time); AMX is taken to be faster without. 0 without instructions for it. Any thread.
double bf16_speed(IsaSet isa);

}  // namespace ipexrun::preload
