// The truth of activation: the formulas in doubles, written so that nothing cancels, one rounding to fp32 and, for bf16, one more.
#include "kernels/ref/activation.h"

#include <cmath>

#include "kernels/ref/element.h"

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
  for (std::int64_t i = 0; i < args.n; ++i) put(args.to, args.dtype, i, activation_of(args.kind, get(args.from, args.dtype, i)));
}

}  // namespace ipexrun::kernels::ref
