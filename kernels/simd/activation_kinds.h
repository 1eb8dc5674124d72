// gelu in both forms, tanh, sigmoid and silu of a vector of fp32.
//
// The polynomials, here and in exp2.h, come from tools/fit_activation.py.
#pragma once

#include "kernels/activation.h"
#include "kernels/simd/floats.h"
//
#include "kernels/simd/exp2.h"
#if defined(__AVX512F__)
#include "kernels/simd/phi_pieces.h"
#endif

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

using Vector = Floats::Vector;

/// 1 / (1 + 2^(n + f)) for |f| <= 1/2, or 0 where n is above 126.
[[gnu::always_inline]] inline Vector sigmoid_of(Vector n, Vector f) {
  const Vector power = Floats::scale(exp2_of(f), n);
  return Floats::reciprocal_up_to(Floats::add(power, Floats::all(1.0f)), n, Floats::all(126.0f));
}

struct Sigmoid {
  // Above 87, 2^y no longer counts, and infinity must not get into f. Below, where y is large, f is of no use and not used.
  [[gnu::always_inline]] static Vector run(Vector x) {
    const Vector bounded = Floats::at_most(Floats::all(87.0f), x);
    const Vector n = Floats::nearest(Floats::multiply(bounded, Floats::all(-kLog2E)));
    const Vector f = Floats::fma(bounded, Floats::all(-kLog2ERest), Floats::fms(bounded, Floats::all(-kLog2E), n));
    return sigmoid_of(n, f);
  }
};

struct Silu {
  [[gnu::always_inline]] static Vector run(Vector x) { return Floats::multiply(x, Sigmoid::run(x)); }
};

struct GeluTanh {
  // (1 + tanh z) / 2 = 1 / (1 + e^-2z), and -2z log2(e) = x (a + b x^2)
  [[gnu::always_inline]] static Vector run(Vector x) {
    const Vector square = Floats::multiply(x, x);
    const Vector y = Floats::multiply(x, Floats::fma(square, Floats::all(-0.10294324f), Floats::all(-2.3022082f)));
    const Vector bounded = Floats::at_least(Floats::all(-126.0f), y);
    const Vector n = Floats::nearest(bounded);
    return Floats::multiply(x, sigmoid_of(n, Floats::subtract(bounded, n)));
  }
};

struct Tanh {
  // With m = e^-2|x| - 1: tanh |x| = -m / (2 + m). m is exact to its last bits near 0 because 2^n - 1 is then 0.
  [[gnu::always_inline]] static Vector run(Vector x) {
    const Vector bounded = Floats::at_most(Floats::all(20.0f), Floats::magnitude(x));
    const Vector rate = Floats::all(-2 * kLog2E);
    const Vector n = Floats::nearest(Floats::multiply(bounded, rate));
    const Vector f = Floats::fms(bounded, rate, n);
    const Vector part = Floats::multiply(f, polynomial(kExp2Less1, f));
    const Vector power = Floats::scale(Floats::all(1.0f), n);
    const Vector m = Floats::fma(power, part, Floats::subtract(power, Floats::all(1.0f)));
    return Floats::with_sign(Floats::magnitude(Floats::divide(m, Floats::add(m, Floats::all(2.0f)))), x);
  }
};

#if defined(__AVX512F__)
struct Gelu {
  // A lookup costs as much as a multiplication, and five of these then do for fourteen.
  [[gnu::always_inline]] static Vector run(Vector x) {
    const Vector bounded = Floats::at_most(Floats::all(16 * kPieceWidth), Floats::at_least(Floats::all(-15 * kPieceWidth), x));
    // Added to a number whose last bit is worth 1, x / width is rounded to an integer, and 15 more of it is the index.
    const Vector base = Floats::all(12582912.0f + 15);
    const Vector index = Floats::fma(bounded, Floats::all(1 / kPieceWidth), base);
    const Vector r = Floats::fma(Floats::subtract(index, base), Floats::all(-kPieceWidth), bounded);
    constexpr int kDegree = sizeof(kPhi) / sizeof(kPhi[0]) - 1;
    Vector phi = Floats::lookup(kPhi[kDegree], index);
#pragma GCC unroll 8
    for (int k = kDegree - 1; k >= 0; --k) phi = Floats::fma(phi, r, Floats::lookup(kPhi[k], index));
    return Floats::multiply(x, phi);
  }
};
#else
/// (Phi(x) - 1/2) / x in w = 2 x^2 / kErfCut^2 - 1 for |x| <= kErfCut: 5.8e-8 of Phi; just beyond 0 and 1 at the cut
constexpr float kErfCut = 5.3f;
constexpr float kHalfErf[] = {0.133392558f,   -0.0665185004f,  0.0492641814f,   -0.0395888463f,   0.0320793539f,
                              -0.0252990387f, 0.018927129f,    -0.0131824901f,  0.00882357545f,   -0.0058553298f,
                              0.00314310566f, -0.00109064055f, 0.000725005695f, -0.000766420446f, 0.000285995746f};

struct Gelu {
  [[gnu::always_inline]] static Vector run(Vector x) {
    const Vector bounded = Floats::at_most(Floats::all(kErfCut), Floats::at_least(Floats::all(-kErfCut), x));
    const Vector w = Floats::fma(Floats::multiply(bounded, Floats::all(2 / (kErfCut * kErfCut))), bounded, Floats::all(-1.0f));
    const Vector phi = Floats::fma(bounded, polynomial_in_halves(kHalfErf, w), Floats::all(0.5f));
    return Floats::multiply(x, Floats::at_most(Floats::all(1.0f), Floats::at_least(Floats::all(0.0f), phi)));
  }
};
#endif

/// run.operator()<Kind>() with the one of the types above that `kind` names.
template <typename Run>
[[gnu::always_inline]] inline void with_kind(Activation kind, const Run& run) {
  switch (kind) {
    case Activation::kGelu:
      return run.template operator()<Gelu>();
    case Activation::kGeluTanh:
      return run.template operator()<GeluTanh>();
    case Activation::kTanh:
      return run.template operator()<Tanh>();
    case Activation::kSigmoid:
      return run.template operator()<Sigmoid>();
    case Activation::kSilu:
      return run.template operator()<Silu>();
  }
}

}  // namespace
}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
