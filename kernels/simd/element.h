// One element of an image, as fp32 and back. Sources with loops of these are compiled with -O3, for the compiler's own vectorizer.
#pragma once

#include <cstdint>

#include "kernels/bf16.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

[[gnu::always_inline]] inline float as_f32(float value) { return value; }
[[gnu::always_inline]] inline float as_f32(std::uint16_t value) { return bf16_to_f32(value); }
[[gnu::always_inline]] inline void put(float* to, float value) { *to = value; }
[[gnu::always_inline]] inline void put(std::uint16_t* to, float value) { *to = bf16_from_f32(value); }

}  // namespace
}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
