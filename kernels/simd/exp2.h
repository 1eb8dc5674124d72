// 2^x - 1 near 0, and log2(e), for the kernels that need an exponential. Include after floats_*.h.
#pragma once

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

/// (2^f - 1) / f for |f| <= 1/2, lowest power first: 2.1e-8 of it (tools/fit_activation.py)
constexpr float kExp2Less1[] = {0.693147182f, 0.240226492f, 0.0555035733f, 0.00961823761f, 0.00133907353f, 0.000154035122f};

// log2(e) as the sum of two fp32.
constexpr float kLog2E = 1.44269502f;
constexpr float kLog2ERest = 1.92596303e-8f;

/// Horner's scheme, lowest power first.
template <int N>
[[gnu::always_inline]] inline Floats::Vector polynomial(const float (&c)[N], Floats::Vector x) {
  Floats::Vector sum = Floats::all(c[N - 1]);
#pragma GCC unroll 16
  for (int i = N - 2; i >= 0; --i) sum = Floats::fma(sum, x, Floats::all(c[i]));
  return sum;
}

/// The same by even and odd powers: one multiplication more, half the time from the first operation to the last.
template <int N>
[[gnu::always_inline]] inline Floats::Vector polynomial_in_halves(const float (&c)[N], Floats::Vector x) {
  const Floats::Vector square = Floats::multiply(x, x);
  Floats::Vector high = Floats::all(c[N - 1]);
  Floats::Vector low = Floats::all(c[N - 2]);
#pragma GCC unroll 16
  for (int i = N - 3; i >= 0; i -= 2) high = Floats::fma(high, square, Floats::all(c[i]));
#pragma GCC unroll 16
  for (int i = N - 4; i >= 0; i -= 2) low = Floats::fma(low, square, Floats::all(c[i]));
  return N % 2 == 0 ? Floats::fma(high, x, low) : Floats::fma(low, x, high);
}

/// 2^f for |f| <= 1/2
[[gnu::always_inline]] inline Floats::Vector exp2_of(Floats::Vector f) {
  return Floats::fma(f, polynomial(kExp2Less1, f), Floats::all(1.0f));
}

/// e^d for d <= 0, 0 below the smallest normal number.
[[gnu::always_inline]] inline Floats::Vector exponential(Floats::Vector d) {
  const Floats::Vector n = Floats::nearest(Floats::multiply(d, Floats::all(kLog2E)));
  const Floats::Vector f = Floats::fma(d, Floats::all(kLog2ERest), Floats::fms(d, Floats::all(kLog2E), n));
  return Floats::scale_from(exp2_of(f), n, Floats::all(-126.0f));
}

}  // namespace
}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
