// The truth of activation: the formulas in doubles, written so that nothing cancels, one rounding to fp32 and, for bf16, one more.
#include "kernels/ref/activation.h"

#include <cmath>

#include "kernels/bf16.h"

namespace ipexrun::kernels::ref {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

double activation_of(Activation kind, double x) {
  switch (kind) {
    case Activation::kGelu:
      return x * 0.5 * std::erfc(-x * std::sqrt(0.5));
    case Activation::kGeluTanh:  // (1 + tanh y) / 2 = sigmoid(2 y)
      return x * sigmoid(2 * std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x));
    case Activation::kTanh:
      return std::tanh(x);
    case Activation::kSigmoid:
      return sigmoid(x);
    case Activation::kSilu:
      return x * sigmoid(x);
  }
  return x;
}

void activation(const ActivationArgs& args) {
  for (std::int64_t i = 0; i < args.n; ++i) {
    if (args.dtype == DType::kF32) {
      static_cast<float*>(args.to)[i] =
          static_cast<float>(activation_of(args.kind, static_cast<double>(static_cast<const float*>(args.from)[i])));
    } else {
      const float x = bf16_to_f32(static_cast<const std::uint16_t*>(args.from)[i]);
      static_cast<std::uint16_t*>(args.to)[i] = bf16_from_f32(static_cast<float>(activation_of(args.kind, static_cast<double>(x))));
    }
  }
}

}  // namespace ipexrun::kernels::ref
