#include "preload/plugin/dropouts.h"

#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/masked.h"
#include "preload/plugin/answer.h"
#include "preload/plugin/candidate_kernels.h"
#include "preload/plugin/parallel.h"
#include "preload/plugin/tier_state.h"

namespace ipexrun::preload {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor weighed(const at::Tensor& from, const at::Tensor& mask, double scale) {
  at::Tensor to = at::empty_like(from, at::MemoryFormat::Contiguous);
  kernels::MaskedArgs args;
  args.from = from.const_data_ptr();
  args.mask = mask.const_data_ptr<std::uint8_t>();
  args.to = to.mutable_data_ptr();
  args.dtype = kernel_dtype(from);
  args.n = from.numel();
  args.scale = static_cast<float>(scale);
  kernels::masked(args, torch_pool(), tier()->options.isa);
  return to;
}

struct MaskedDropout : torch::autograd::Function<MaskedDropout> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& from, double p) {
    at::Tensor mask = at::empty(from.sizes(), at::TensorOptions().dtype(at::kByte));
    mask.bernoulli_(1 - p);
    // What torch divides 1 by, in this dtype.
    const double scale = at::ones({1}, from.options()).div_(1 - p).item().toDouble();
    context->save_for_backward({mask});
    context->saved_data["scale"] = scale;
    return weighed(from, mask, scale);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    if (!grads[0].defined()) return {at::Tensor(), at::Tensor()};
    const at::Tensor mask = context->get_saved_variables()[0];
    const double scale = context->saved_data["scale"].toDouble();
    if (at::GradMode::is_enabled() || !plain(grads[0]) || !dtype_fits(grads[0].scalar_type())) {
      return {at::mul(grads[0], at::mul(mask.to(grads[0].scalar_type()), scale)), at::Tensor()};
    }
    return {weighed(grads[0].contiguous(), mask, scale), at::Tensor()};
  }
};

}  // namespace

std::optional<at::Tensor> masked_dropout(const at::Tensor& from, double p) {
  const bool fits = tier() != nullptr && plain(from) && dtype_fits(from.scalar_type()) && from.is_contiguous() && from.numel() > 0 &&
                    p > 0 && p < 1 && kernels::masked_supported(tier()->options.isa);
  if (!fits) return std::nullopt;
  return MaskedDropout::apply(from, p);
}

}  // namespace ipexrun::preload
