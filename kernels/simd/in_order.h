// Vectors of fp32 from and to neighbouring elements of fp32 or bf16, in their order. A NaN of any bits stays one.
#pragma once

#include "kernels/simd/floats.h"
#if defined(__AVX512F__)
#include "kernels/simd/halves_avx512.h"
#if !defined(IPEXRUN_KERNEL_ISA_AVX512)
namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {
using avx512::Halves;
}  // namespace
}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
#endif
#else
#include "kernels/simd/halves_avx2.h"
#endif

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

struct InOrderF32 {
  using Element = float;
  [[gnu::always_inline]] static Floats::Vector load(const float* from) { return Floats::of_bits(Lanes::load(from)); }
  [[gnu::always_inline]] static Floats::Vector load_part(const float* from, std::int64_t n) {
    return Floats::of_bits(Lanes::load_part(from, Lanes::part(n * 4)));
  }
  [[gnu::always_inline]] static void store(float* to, Floats::Vector value) { Lanes::store(to, Floats::bits_of(value)); }
  [[gnu::always_inline]] static void store_part(float* to, Floats::Vector value, std::int64_t n) {
    Lanes::store_part(to, Floats::bits_of(value), Lanes::part(n * 4));
  }
};

struct InOrderBf16 {
  using Element = std::uint16_t;
  [[gnu::always_inline]] static Floats::Vector load(const std::uint16_t* from) { return Floats::of_bits(Halves::load(from)); }
  [[gnu::always_inline]] static Floats::Vector load_part(const std::uint16_t* from, std::int64_t n) {
    return Floats::of_bits(Halves::load_part(from, n));
  }
  [[gnu::always_inline]] static void store(std::uint16_t* to, Floats::Vector value) { Halves::store(to, Floats::bits_of(value)); }
  [[gnu::always_inline]] static void store_part(std::uint16_t* to, Floats::Vector value, std::int64_t n) {
    Halves::store_part(to, Floats::bits_of(value), n);
  }
};

}  // namespace
}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
