// What may follow a product while its sums are still at hand: C = unary(sums + bias) op other, or unary((sums + bias) op other).
//
// Computed in fp32 from the fp32 sums and rounded once into C, so nothing is rounded to bf16 on the way. Methods and errors of the
// functions are those of activation.h; relu keeps NaN.
#pragma once

#include <cstdint>

#include "kernels/activation.h"
#include "kernels/dtype.h"

namespace ipexrun::kernels {

enum class Unary : int { kNone = 0, kRelu = 1, kGelu = 2, kGeluTanh = 3, kTanh = 4, kSigmoid = 5, kSilu = 6 };
enum class Binary : int { kNone = 0, kAdd = 1, kMul = 2 };

/// The function of activation.h behind a Unary from kGelu on.
constexpr Activation activation_of(Unary unary) { return static_cast<Activation>(static_cast<int>(unary) - 2); }

struct Epilogue {
  Unary unary = Unary::kNone;
  Binary binary = Binary::kNone;
  /// The order: a residual network adds, then applies relu; a gated layer applies silu, then multiplies.
  bool binary_first = false;
  const void* other = nullptr;  ///< [M, N] beside C; may be C itself (same rows and dtype), must not overlap it otherwise
  DType other_dtype = DType::kF32;
  std::int64_t ld_other = 0;  ///< elements between its rows, >= N

  [[nodiscard]] constexpr bool any() const { return unary != Unary::kNone || binary != Binary::kNone; }
};

}  // namespace ipexrun::kernels
