// The truth of cross_entropy: the formulas in doubles; gradients are rounded to fp32 and, for bf16, once more.
#include "kernels/ref/cross_entropy.h"

#include <cmath>

#include "kernels/ref/element.h"

namespace ipexrun::kernels::ref {
namespace {

double weight_of(const CrossEntropyRows& args, std::int64_t i) {
  return args.weight == nullptr ? 1.0 : get(args.weight, args.weight_dtype, i);
}

}  // namespace

void cross_entropy_losses(const CrossEntropyArgs& args, double weights, std::int64_t row_begin, std::int64_t row_end, double* losses) {
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    const auto x = [&](std::int64_t i) { return get(args.logits, args.dtype, row * args.row_stride + i); };
    double largest = -HUGE_VAL;
    for (std::int64_t i = 0; i < args.columns; ++i) largest = std::fmax(largest, x(i));
    double sum = 0;
    for (std::int64_t i = 0; i < args.columns; ++i) sum += std::exp(x(i) - largest);
    const double lse = largest + std::log(sum);
    if (args.lse != nullptr) args.lse[row] = static_cast<float>(lse);
    const std::int64_t target = args.targets[row];
    losses[row] = 0;
    if (target == args.ignored) continue;
    losses[row] = (1 - args.smoothing) * weight_of(args, target) * (lse - x(target));
    if (args.smoothing == 0) continue;
    double weighted = 0;
    for (std::int64_t i = 0; i < args.columns; ++i) weighted += weight_of(args, i) * x(i);
    losses[row] += args.smoothing / static_cast<double>(args.columns) * (weights * lse - weighted);
  }
}

void cross_entropy_grads(const CrossEntropyGradArgs& args, double weights, std::int64_t row_begin, std::int64_t row_end) {
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    const std::int64_t target = args.targets[row];
    const double share = args.smoothing / static_cast<double>(args.columns);
    const double g = get(args.loss_grad, args.loss_grad_dtype, row * args.loss_grad_stride) / args.divisor;
    for (std::int64_t i = 0; i < args.columns; ++i) {
      double value = 0;
      if (target != args.ignored) {
        const double own = (1 - args.smoothing) * weight_of(args, target);
        const double softmax = std::exp(get(args.logits, args.dtype, row * args.row_stride + i) - static_cast<double>(args.lse[row]));
        value = g * (softmax * (own + share * weights) - (i == target ? own : 0) - (share != 0 ? share * weight_of(args, i) : 0));
      }
      put(args.grad, args.dtype, row * args.grad_stride + i, value);
    }
  }
}

}  // namespace ipexrun::kernels::ref
