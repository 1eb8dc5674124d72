#include "preload/plugin/convolutions.h"

#include <ATen/LegacyBatchedTensorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>

#include <vector>

#include "preload/plugin/adapters/images.h"
#include "preload/plugin/answer.h"
#include "preload/plugin/candidate_kernels.h"
#include "preload/plugin/tier_state.h"

namespace ipexrun::preload {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool fits(const RoundedConvolution& call) {
  const at::Tensor& x = call.from;
  const at::Tensor& w = call.weight;
  if (tier() == nullptr || !plain(x) || !plain(w) || x.dim() != 4 || w.dim() != 4 || x.numel() == 0 || w.numel() == 0) return false;
  if (!dtype_fits(x.scalar_type()) || w.scalar_type() != at::kFloat || !x.is_contiguous(at::MemoryFormat::ChannelsLast)) return false;
  if (!w.is_contiguous() && !w.is_contiguous(at::MemoryFormat::ChannelsLast)) return false;
  if (call.bias.has_value() && call.bias->defined()) {
    const at::Tensor& b = *call.bias;
    if (!plain(b) || b.scalar_type() != at::kFloat || b.dim() != 1 || b.size(0) != w.size(0)) return false;
  }
  if (call.groups != 1 || x.size(1) != w.size(1)) return false;
  for (std::size_t i = 0; i < 2; ++i) {
    const std::int64_t size = x.size(static_cast<std::int64_t>(2 + i)) + 2 * call.padding[i];
    if (call.stride[i] < 1 || call.dilation[i] < 1 || call.padding[i] < 0) return false;
    if (size < call.dilation[i] * (w.size(static_cast<std::int64_t>(2 + i)) - 1) + 1) return false;
  }
  return bf16_is_native(tier()->options.isa);
}

std::vector<std::int64_t> list(const std::array<std::int64_t, 2>& values) { return {values.begin(), values.end()}; }

struct Convolved : torch::autograd::Function<Convolved> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& from, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, const RoundedConvolution* call) {
    const IsaSet isa = tier()->options.isa;
    const std::vector<std::int64_t> stride = list(call->stride);
    const std::vector<std::int64_t> padding = list(call->padding);
    const std::vector<std::int64_t> dilation = list(call->dilation);
    at::Tensor to;
    at::Tensor rounded;
    {
      const c10::impl::ExcludeDispatchKeyGuard uncast(c10::autocast_dispatch_keyset);
      rounded = for_onednn(weight.detach(), at::kBFloat16, isa);
      std::optional<at::Tensor> rounded_bias;
      if (bias.has_value() && bias->defined()) rounded_bias = bias->detach().to(at::kBFloat16);
      // The op tier is to know it for a call of training, whose weights are not kept.
      rounded.set_requires_grad(true);
      const at::AutoGradMode recorded(true);
      const at::AutoDispatchBelowADInplaceOrView below;
      to = at::convolution(from.scalar_type() == at::kBFloat16 ? from : from.to(at::kBFloat16), rounded, rounded_bias, stride, padding,
                           dilation, false, {0, 0}, 1);
    }
    context->save_for_backward({from, weight, rounded.detach()});
    context->saved_data["to_bias"] = bias.has_value() && bias->defined() && bias->requires_grad();
    context->saved_data["stride"] = stride;
    context->saved_data["padding"] = padding;
    context->saved_data["dilation"] = dilation;
    context->saved_data["to_from"] = from.requires_grad();
    context->saved_data["to_weight"] = weight.requires_grad();
    return to;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    if (!grads[0].defined()) return {at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
    const c10::impl::ExcludeDispatchKeyGuard uncast(c10::autocast_dispatch_keyset);
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& from = saved[0];
    const at::Tensor& weight = saved[1];
    const std::vector<std::int64_t> stride = context->saved_data["stride"].toIntVector();
    const std::vector<std::int64_t> padding = context->saved_data["padding"].toIntVector();
    const std::vector<std::int64_t> dilation = context->saved_data["dilation"].toIntVector();
    const bool to_from = context->saved_data["to_from"].toBool();
    const bool to_weight = context->saved_data["to_weight"].toBool();
    const bool to_bias = context->saved_data["to_bias"].toBool();
    const bool again = at::GradMode::is_enabled();  // this pass is recorded, too
    const at::Tensor rounded = again ? weight.to(at::kBFloat16) : saved[2];
    const at::Tensor image = from.to(at::kBFloat16);
    // Which the op tier answers.
    auto [of_image, of_weight, of_bias] = at::convolution_backward(grads[0], image, rounded, at::IntArrayRef{weight.size(0)}, stride,
                                                                   padding, dilation, false, {0, 0}, 1, {to_from, to_weight, to_bias});
    if (to_from) of_image = of_image.to(from.scalar_type());
    if (to_bias) of_bias = of_bias.to(at::kFloat);
    const bool ours = !again && !at::isBatchedTensor(of_weight);  // is_grads_batched: of several gradients at once
    if (to_weight && !ours) of_weight = of_weight.to(at::kFloat);
    if (to_weight && ours) of_weight = as_stock(of_weight, at::kFloat, !weight.is_contiguous(), tier()->options.isa);
    return {of_image, of_weight, of_bias, at::Tensor()};
  }
};

}  // namespace

std::optional<at::Tensor> rounded_convolution(const RoundedConvolution& call) {
  if (!fits(call)) return std::nullopt;
  return Convolved::apply(call.from, call.weight, call.bias, &call);
}

}  // namespace ipexrun::preload
