// The truth of batch_norm: the formulas in doubles, one rounding to fp32 and, for bf16, one more.
#include "kernels/ref/batch_norm.h"

#include "kernels/ref/element.h"

namespace ipexrun::kernels::ref {
namespace {

double normed(const void* from, DType dtype, std::int64_t i, std::int64_t c, const float* mean, const float* scale, const float* shift) {
  return (get(from, dtype, i) - static_cast<double>(mean[c])) * static_cast<double>(scale[c]) + static_cast<double>(shift[c]);
}

/// The gradient in front of relu; where relu's result is NaN it passes.
double before_relu(const BatchNormGradArgs& args, std::int64_t i, std::int64_t c) {
  const double grad = get(args.grad, args.dtype, i);
  if (!args.relu) return grad;
  const double result =
      args.result != nullptr ? get(args.result, args.dtype, i) : normed(args.from, args.dtype, i, c, args.mean, args.scale, args.shift);
  return result <= 0 ? 0 : grad;
}

}  // namespace

void batch_moments(const PivotedMomentsArgs& args, std::int64_t begin, std::int64_t end, double* sums, float* /*scratch*/) {
  for (std::int64_t c = 0; c < args.channels; ++c) {
    sums[c] = sums[args.channels + c] = 0;
    for (std::int64_t row = begin; row < end; ++row) {
      const double x = get(args.from, args.dtype, row * args.channels + c) - static_cast<double>(args.pivots[c]);
      sums[c] += x;
      sums[args.channels + c] += x * x;
    }
  }
}

void batch_norm(const BatchNormArgs& args, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin * args.channels; i < end * args.channels; ++i) {
    double value = normed(args.from, args.dtype, i, i % args.channels, args.mean, args.scale, args.shift);
    if (args.residual != nullptr) value += get(args.residual, args.dtype, i);
    put(args.to, args.dtype, i, args.relu && value < 0 ? 0 : value);
  }
}

void batch_norm_grad_sums(const BatchNormGradArgs& args, std::int64_t begin, std::int64_t end, double* sums, float* /*scratch*/) {
  for (std::int64_t c = 0; c < args.channels; ++c) {
    sums[c] = sums[args.channels + c] = 0;
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t i = row * args.channels + c;
      const double g = before_relu(args, i, c);
      sums[c] += g;
      sums[args.channels + c] += g * (get(args.from, args.dtype, i) - static_cast<double>(args.mean[c]));
    }
  }
}

void batch_norm_grad(const BatchNormGradArgs& args, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin * args.channels; i < end * args.channels; ++i) {
    const std::int64_t c = i % args.channels;
    const double g = before_relu(args, i, c);
    const double x = get(args.from, args.dtype, i) - static_cast<double>(args.mean[c]);
    put(args.to, args.dtype, i,
        static_cast<double>(args.by_grad[c]) * g + static_cast<double>(args.by_from[c]) * x + static_cast<double>(args.constant[c]));
    if (args.before_relu != nullptr) put(args.before_relu, args.dtype, i, g);
  }
}

}  // namespace ipexrun::kernels::ref
