// What F(2x2, 3x3) and F(4x4, 3x3) make of a row of pixels and of a row of sums (winograd_variants.h has both as matrices): B' d and A' m
// of one dimension, on vectors of channels.
#pragma once

#include "kernels/simd/floats.h"
#include "kernels/winograd_variants.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

template <int kTile>
struct Tiles;

template <>
struct Tiles<2> {
  using Numbers = Floats::Vector;
  static constexpr std::int64_t kDepth = 256;  ///< channels that are summed up before sums are added to each other

  [[gnu::always_inline]] static void transform(const Numbers (&p)[4], Numbers (&to)[4]) {
    to[0] = Floats::subtract(p[0], p[2]);
    to[1] = Floats::add(p[1], p[2]);
    to[2] = Floats::subtract(p[2], p[1]);
    to[3] = Floats::subtract(p[1], p[3]);
  }
  [[gnu::always_inline]] static void put_together(const Numbers (&m)[4], Numbers (&to)[2]) {
    to[0] = Floats::add(Floats::add(m[0], m[1]), m[2]);
    to[1] = Floats::subtract(Floats::subtract(m[1], m[2]), m[3]);
  }
};

template <>
struct Tiles<4> {
  using Numbers = Floats::Vector;
  using Matrices = WinogradMatrices<4>;
  /// Half the error that 256 have, which grows with the root of it and is several times that of smaller tiles; 3% of the time.
  static constexpr std::int64_t kDepth = 64;

  /// What a point and its negative have in common is computed once.
  [[gnu::always_inline]] static void transform(const Numbers (&p)[6], Numbers (&to)[6]) {
    const Numbers aa = Floats::all(static_cast<float>(-Matrices::kAa));
    const Numbers bb = Floats::all(static_cast<float>(-Matrices::kBb));
    const Numbers both = Floats::all(static_cast<float>(Matrices::kAa * Matrices::kBb));
    const Numbers either = Floats::all(static_cast<float>(-Matrices::kAa - Matrices::kBb));
    to[0] = Floats::fma(both, p[0], Floats::fma(either, p[2], p[4]));
    to[5] = Floats::fma(both, p[1], Floats::fma(either, p[3], p[5]));
    around(Floats::fma(bb, p[2], p[4]), Floats::fma(bb, p[1], p[3]), Matrices::kA, to[1], to[2]);
    around(Floats::fma(aa, p[2], p[4]), Floats::fma(aa, p[1], p[3]), Matrices::kB, to[3], to[4]);
  }
  [[gnu::always_inline]] static void put_together(const Numbers (&m)[6], Numbers (&to)[4]) {
    const Numbers a = Floats::all(static_cast<float>(Matrices::kA));
    const Numbers b = Floats::all(static_cast<float>(Matrices::kB));
    const Numbers aa = Floats::all(static_cast<float>(Matrices::kAa));
    const Numbers bb = Floats::all(static_cast<float>(Matrices::kBb));
    const Numbers of_a = Floats::add(m[1], m[2]);
    const Numbers of_b = Floats::add(m[3], m[4]);
    const Numbers by_a = Floats::multiply(a, Floats::subtract(m[1], m[2]));
    const Numbers by_b = Floats::multiply(b, Floats::subtract(m[3], m[4]));
    to[0] = Floats::add(m[0], Floats::add(of_a, of_b));
    to[1] = Floats::add(by_a, by_b);
    to[2] = Floats::fma(aa, of_a, Floats::multiply(bb, of_b));
    to[3] = Floats::fma(aa, by_a, Floats::fma(bb, by_b, m[5]));
  }

 private:
  /// even + point * odd, even - point * odd
  [[gnu::always_inline]] static void around(Numbers even, Numbers odd, double point, Numbers& plus, Numbers& minus) {
    plus = Floats::fma(Floats::all(static_cast<float>(point)), odd, even);
    minus = Floats::fma(Floats::all(static_cast<float>(-point)), odd, even);
  }
};

}  // namespace
}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
