// Negative log likelihood, of vectors and of images, and its gradient. cross_entropy is made of it and of log softmax.
#include <ATen/ops/empty.h>

#include "preload/xpu/index_check.h"
#include "preload/xpu/operands.h"
#include "preload/xpu/operators.h"

namespace ipexrun::preload::xpu {
namespace {

using at::Tensor;

struct LossShape {  // loss.cl
  std::int64_t all, classes, inner, ignored;
};

/// False where it is not for kernels. input: [C], [N, C] or [N, C, H, W].
bool describe(const Tensor& input, const Tensor& target, const Tensor& weight, std::int64_t ignored, LossShape& out) {
  if (!is_real(input) || !plain(target) || target.scalar_type() != at::kLong || input.numel() == 0 || input.dim() == 0) return false;
  if (weight.defined() && (!is_real(weight) || weight.scalar_type() != input.scalar_type())) return false;
  out.classes = input.size(input.dim() == 1 ? 0 : 1);
  out.all = target.numel();
  out.inner = input.dim() == 4 ? input.size(2) * input.size(3) : 1;
  out.ignored = ignored;
  return out.all * out.classes == input.numel() && (!weight.defined() || weight.numel() == out.classes);
}
Kernel& kernel(const Tensor& in, const char* name) { return unit_of(in).device->kernel("loss", real_options(in), name); }

bool compute(const Tensor& input, const Tensor& given_target, const Tensor& weight, std::int64_t reduction, const LossShape& shape,
             const Tensor& out, const Tensor& total) {
  const Tensor in = input.contiguous(), target = given_target.contiguous();
  const Argument any = read(weight.defined() ? weight : in);
  if (reduction == 0 && input.dim() > 1) {
    if (out.sizes() != target.sizes()) out.resize_(target.sizes());
    const Tensor each = out.is_contiguous() ? out : at::empty(out.sizes(), out.options());
    total.zero_();
    launch_linear(in, kernel(in, "each_loss"),
                  {write(each), read(in), read(target), any, index_mark(in), flag(weight.defined()), Argument::value(shape)}, shape.all);
    if (!each.is_same(out)) out.copy_(each);
    return true;
  }
  if (out.dim() != 0) out.resize_({});
  unit_of(in).device->launch(kernel(in, "whole_loss"),
                             std::vector<Argument>{write(out), write(total), read(in), read(target), any, index_mark(in),
                                                   flag(weight.defined()), flag(reduction == 1), Argument::value(shape)},
                             {256, 1, 1}, {256, 1, 1}, stream_of(in));
  return true;
}
void gradient(const Tensor& grad, const Tensor& given_target, const Tensor& weight, std::int64_t reduction, const Tensor& total,
              const LossShape& shape, const Tensor& out) {
  out.zero_();
  const Tensor target = given_target.contiguous(), from = grad.contiguous();
  launch_linear(out, kernel(out, "loss_gradient"),
                {write(out), read(from), read(total), read(target), read(weight.defined() ? weight : out), index_mark(out),
                 flag(weight.defined()), Argument::value(static_cast<std::int32_t>(reduction)), Argument::value(shape)},
                shape.all);
}

/// (self, target, weight, reduction, ignore_index, output, total_weight)
bool nll_loss(Given given, Results& results) {
  const Tensor self = given[0].toTensor(), target = given[1].toTensor(), weight = packed(optional_tensor(given[2]));
  const Tensor out = given[5].toTensor(), total = given[6].toTensor();
  LossShape shape;
  if (!describe(self, target, weight, given[4].toInt(), shape) || self.dim() > 2) return false;
  if (!is_real(out) || !is_real(total) || out.scalar_type() != self.scalar_type() || total.scalar_type() != self.scalar_type())
    return false;
  if (total.dim() != 0) total.resize_({});
  results = {out, total};
  return compute(self, target, weight, given[3].toInt(), shape, out, total);
}
/// (self, target, weight, reduction, ignore_index)
bool nll_loss2d(Given given, Results& results) {
  const Tensor self = given[0].toTensor(), target = given[1].toTensor(), weight = packed(optional_tensor(given[2]));
  LossShape shape;
  if (!describe(self, target, weight, given[4].toInt(), shape) || self.dim() != 4 || target.dim() != 3) return false;
  const Tensor out = at::empty({}, self.options()), total = at::empty({}, self.options());
  results = {out, total};
  return compute(self, target, weight, given[3].toInt(), shape, out, total);
}
/// (grad, self, target, weight, reduction, ignore_index, total_weight, grad_input) or without the last.
bool backward(Given given, Results& results, bool image) {
  const Tensor grad = given[0].toTensor(), self = given[1].toTensor(), target = given[2].toTensor(),
               weight = packed(optional_tensor(given[3]));
  const Tensor total = given[6].toTensor();
  LossShape shape;
  if (!describe(self, target, weight, given[5].toInt(), shape) || !is_real(grad) || grad.scalar_type() != self.scalar_type()) return false;
  if (image != (self.dim() == 4) || !is_real(total) || total.scalar_type() != self.scalar_type()) return false;
  const Tensor out = image ? at::empty(self.sizes(), self.options()) : given[7].toTensor();
  if (!is_real(out) || out.scalar_type() != self.scalar_type()) return false;
  if (out.sizes() != self.sizes()) out.resize_(self.sizes());
  const Tensor to = out.is_contiguous() ? out : at::empty(self.sizes(), self.options());
  const std::int64_t reduction = given[4].toInt();
  gradient(grad, target, weight, self.dim() == 1 && reduction == 0 ? 2 : reduction, total, shape, to);
  if (!to.is_same(out)) out.copy_(to);
  results = {out};
  return true;
}
bool nll_loss_backward(Given given, Results& results) { return backward(given, results, false); }
bool nll_loss2d_backward(Given given, Results& results) { return backward(given, results, true); }

}  // namespace

void register_losses() {
  static auto* aten = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::XPU, __FILE__, __LINE__);
  aten->impl("nll_loss_forward.output", as_kernel<&nll_loss>());
  aten->impl("nll_loss_backward.grad_input", as_kernel<&nll_loss_backward>());
  aten->impl("nll_loss2d_forward", as_kernel<&nll_loss2d>());
  aten->impl("nll_loss2d_backward", as_kernel<&nll_loss2d_backward>());
}

}  // namespace ipexrun::preload::xpu
