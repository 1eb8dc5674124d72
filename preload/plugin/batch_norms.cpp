#include "preload/plugin/batch_norms.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/threshold_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <vector>

#include "kernels/batch_norm.h"
#include "preload/plugin/answer.h"
#include "preload/plugin/candidate_kernels.h"
#include "preload/plugin/parallel.h"
#include "preload/plugin/tier_state.h"

namespace ipexrun::preload {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

bool is_image(const at::Tensor& tensor) {
  return plain(tensor) && tensor.dim() == 4 && dtype_fits(tensor.scalar_type()) && tensor.is_contiguous(at::MemoryFormat::ChannelsLast);
}

bool is_parameter(const std::optional<at::Tensor>& tensor, std::int64_t channels) {
  if (!tensor.has_value() || !tensor->defined()) return true;
  return plain(*tensor) && tensor->scalar_type() == at::kFloat && tensor->dim() == 1 && tensor->size(0) == channels &&
         tensor->is_contiguous();
}

bool given(const std::optional<at::Tensor>& tensor) { return tensor.has_value() && tensor->defined(); }

std::int64_t rows_of(const at::Tensor& image) { return image.numel() / image.size(1); }

bool fits(const BatchNormCall& call) {
  if (tier() == nullptr || !is_image(call.from) || call.from.numel() == 0 || rows_of(call.from) < 2) return false;
  const std::int64_t channels = call.from.size(1);
  if (given(call.residual)) {
    const at::Tensor& other = *call.residual;
    if (!is_image(other) || other.scalar_type() != call.from.scalar_type() || other.sizes() != call.from.sizes()) return false;
  }
  for (const auto* one : {&call.weight, &call.bias, &call.running_mean, &call.running_var}) {
    if (!is_parameter(*one, channels)) return false;
  }
  return given(call.running_mean) == given(call.running_var) && (call.training || given(call.running_mean)) &&
         kernels::batch_norm_supported(tier()->options.isa);
}

/// [channels] floats.
at::Tensor floats(std::int64_t channels) { return at::empty({channels}, at::TensorOptions().dtype(at::kFloat)); }

/// Of one channel's weight or bias.
float one_of(const at::Tensor& parameter, std::int64_t c, float missing) {
  return parameter.defined() ? parameter.const_data_ptr<float>()[c] : missing;
}

/// Of one channel each, float32 [4, channels]: what the kernels take, and 1 / sqrt(variance + eps).
struct OfChannels {
  explicit OfChannels(std::int64_t channels) : all(at::empty({4, channels}, at::TensorOptions().dtype(at::kFloat))) {}
  explicit OfChannels(at::Tensor saved) : all(std::move(saved)) {}

  [[nodiscard]] float* row(std::int64_t i) const { return static_cast<float*>(all.mutable_data_ptr()) + i * all.size(1); }
  [[nodiscard]] float* mean() const { return row(0); }
  [[nodiscard]] float* scale() const { return row(1); }
  [[nodiscard]] float* shift() const { return row(2); }
  [[nodiscard]] float* rstd() const { return row(3); }

  /// What a channel's mean loses as a float goes into its shift: it may be much, beside a small variance.
  void put(std::int64_t c, double exact_mean, double variance, double eps, const at::Tensor& weight, const at::Tensor& bias) const {
    mean()[c] = static_cast<float>(exact_mean);
    rstd()[c] = static_cast<float>(1 / std::sqrt(variance + eps));
    scale()[c] = rstd()[c] * one_of(weight, c, 1.0f);
    const double lost = std::isfinite(exact_mean) ? exact_mean - static_cast<double>(mean()[c]) : 0;
    shift()[c] = static_cast<float>(static_cast<double>(one_of(bias, c, 0.0f)) - lost * static_cast<double>(scale()[c]));
  }

  at::Tensor all;
};

/// By the moments of the batch, which go into the running ones as torch does it.
void take_moments(const BatchNormCall& call, const at::Tensor& weight, const at::Tensor& bias, const OfChannels& of_channels) {
  const std::int64_t channels = call.from.size(1);
  const std::int64_t rows = rows_of(call.from);
  std::vector<double> moments(static_cast<std::size_t>(2 * channels));
  kernels::BatchMomentsArgs args;
  args.from = call.from.const_data_ptr();
  args.dtype = kernel_dtype(call.from);
  args.rows = rows;
  args.channels = channels;
  args.mean = moments.data();
  args.variance = moments.data() + channels;
  if (!kernels::batch_moments(args, torch_pool(), tier()->options.isa)) throw std::bad_alloc();
  float* running_mean = given(call.running_mean) ? call.running_mean->mutable_data_ptr<float>() : nullptr;
  float* running_var = given(call.running_var) ? call.running_var->mutable_data_ptr<float>() : nullptr;
  const double unbiased = static_cast<double>(rows) / static_cast<double>(rows - 1);
  for (std::int64_t c = 0; c < channels; ++c) {
    of_channels.put(c, args.mean[c], args.variance[c], call.eps, weight, bias);
    if (running_mean == nullptr) continue;
    const auto mix = [&](float old, double fresh) {
      return static_cast<float>(call.momentum * fresh + (1 - call.momentum) * static_cast<double>(old));
    };
    running_mean[c] = mix(running_mean[c], args.mean[c]);
    running_var[c] = mix(running_var[c], args.variance[c] * unbiased);
  }
}

kernels::BatchNormArgs norm_args(const at::Tensor& from, const at::Tensor& to, const OfChannels& of_channels, bool relu) {
  kernels::BatchNormArgs args;
  args.from = from.const_data_ptr();
  args.to = to.mutable_data_ptr();
  args.dtype = kernel_dtype(from);
  args.rows = rows_of(from);
  args.channels = from.size(1);
  args.relu = relu;
  args.mean = of_channels.mean();
  args.scale = of_channels.scale();
  args.shift = of_channels.shift();
  return args;
}

struct FusedBatchNorm : torch::autograd::Function<FusedBatchNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& from, const std::optional<at::Tensor>& residual,
                            const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias, const BatchNormCall* call) {
    const std::int64_t channels = from.size(1);
    const OfChannels of_channels(channels);
    const at::Tensor known_weight = weight.value_or(at::Tensor());
    const at::Tensor known_bias = bias.value_or(at::Tensor());
    if (call->training) {
      take_moments(*call, known_weight, known_bias, of_channels);
    } else {
      for (std::int64_t c = 0; c < channels; ++c) {
        of_channels.put(c, static_cast<double>(call->running_mean->const_data_ptr<float>()[c]),
                        static_cast<double>(call->running_var->const_data_ptr<float>()[c]), call->eps, known_weight, known_bias);
      }
    }
    at::Tensor to = at::empty_like(from, at::MemoryFormat::ChannelsLast);
    kernels::BatchNormArgs args = norm_args(from, to, of_channels, call->relu);
    args.residual = given(residual) ? residual->const_data_ptr() : nullptr;
    kernels::batch_norm(args, torch_pool(), tier()->options.isa);

    const bool needs_result = call->relu && given(residual);
    context->save_for_backward({from, known_weight, known_bias, needs_result ? to : at::Tensor(), of_channels.all,
                                call->training ? at::Tensor() : call->running_mean.value(),
                                call->training ? at::Tensor() : call->running_var.value()});
    context->saved_data["training"] = call->training;
    context->saved_data["relu"] = call->relu;
    context->saved_data["eps"] = call->eps;
    // Not needs_input_grad(): it counts the tensors that are there.
    context->saved_data["to_from"] = from.requires_grad();
    context->saved_data["to_residual"] = given(residual) && residual->requires_grad();
    context->saved_data["to_weight"] = given(weight) && weight->requires_grad();
    context->saved_data["to_bias"] = given(bias) && bias->requires_grad();
    return to;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& from = saved[0];
    const at::Tensor& weight = saved[1];
    const at::Tensor& bias = saved[2];
    const at::Tensor& result = saved[3];
    const OfChannels of_channels(saved[4]);
    const bool training = context->saved_data["training"].toBool();
    const bool relu = context->saved_data["relu"].toBool();
    const auto wants = [&](const char* what) { return context->saved_data[what].toBool(); };
    const bool residual = wants("to_residual");
    const at::Tensor& given_grad = grads[0];
    if (!given_grad.defined()) return {at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};

    const std::int64_t channels = from.size(1);
    const bool again = at::GradMode::is_enabled();  // this pass is recorded, too: torch's operators have gradients
    const auto by_torch = [&]() -> variable_list {
      at::Tensor before = given_grad;
      if (relu) before = at::threshold_backward(given_grad, result.defined() ? result : result_of(from, of_channels), 0);
      const bool has_weight = weight.defined();
      auto [to, to_weight, to_bias] =
          at::native_batch_norm_backward(before, from, weight, saved[5], saved[6], training ? of_channels.all[0] : at::Tensor(),
                                         training ? of_channels.all[3] : at::Tensor(), training, context->saved_data["eps"].toDouble(),
                                         {true, has_weight, has_weight || bias.defined()});
      return {to, residual ? before : at::Tensor(), has_weight ? to_weight : at::Tensor(), bias.defined() ? to_bias : at::Tensor(),
              at::Tensor()};
    };
    if (again || !plain(given_grad) || given_grad.scalar_type() != from.scalar_type()) return by_torch();

    const at::Tensor grad = given_grad.contiguous(at::MemoryFormat::ChannelsLast);
    const std::int64_t rows = rows_of(from);
    std::vector<double> sums(static_cast<std::size_t>(2 * channels));
    kernels::BatchNormGradArgs args;
    args.grad = grad.const_data_ptr();
    args.from = from.const_data_ptr();
    args.result = result.defined() ? result.const_data_ptr() : nullptr;
    args.dtype = kernel_dtype(from);
    args.rows = rows;
    args.channels = channels;
    args.relu = relu;
    args.mean = of_channels.mean();
    args.scale = of_channels.scale();
    args.shift = of_channels.shift();
    args.sum = sums.data();
    args.product = sums.data() + channels;
    const IsaSet isa = tier()->options.isa;
    if (!kernels::batch_norm_grad_sums(args, torch_pool(), isa)) throw std::bad_alloc();
    // With statistics that were kept a gradient does not depend on the numbers themselves, so that it is one where they are none.
    if (!training && !std::all_of(sums.begin(), sums.end(), [](double one) { return std::isfinite(one); })) return by_torch();

    at::Tensor to_weight = wants("to_weight") ? floats(channels) : at::Tensor();
    at::Tensor to_bias = wants("to_bias") ? floats(channels) : at::Tensor();
    std::vector<float> factors(static_cast<std::size_t>(3 * channels));
    for (std::int64_t c = 0; c < channels; ++c) {
      const auto one_rstd = static_cast<double>(of_channels.rstd()[c]);
      const auto scale = static_cast<double>(args.scale[c]);
      const double share = training ? -scale / static_cast<double>(rows) : 0;
      const auto at = static_cast<std::size_t>(c);
      const auto count = static_cast<std::size_t>(channels);
      factors[at] = args.scale[c];
      factors[count + at] = static_cast<float>(share * one_rstd * one_rstd * args.product[c]);
      factors[2 * count + at] = static_cast<float>(share * args.sum[c]);
      if (to_weight.defined()) to_weight.mutable_data_ptr<float>()[c] = static_cast<float>(one_rstd * args.product[c]);
      if (to_bias.defined()) to_bias.mutable_data_ptr<float>()[c] = static_cast<float>(args.sum[c]);
    }
    at::Tensor to_residual = !residual ? at::Tensor() : relu ? at::empty_like(grad) : grad;
    at::Tensor to;
    if (wants("to_from")) {
      to = at::empty_like(from, at::MemoryFormat::ChannelsLast);
      args.by_grad = factors.data();
      args.by_from = factors.data() + channels;
      args.constant = factors.data() + 2 * channels;
      args.to = to.mutable_data_ptr();
      args.before_relu = residual && relu ? to_residual.mutable_data_ptr() : nullptr;
      kernels::batch_norm_grad(args, torch_pool(), isa);
    } else if (residual && relu) {
      to_residual = at::threshold_backward(grad, result, 0);
    }
    return {to, to_residual, to_weight, to_bias, at::Tensor()};
  }

  /// What relu gave, where nothing was added before it.
  static at::Tensor result_of(const at::Tensor& from, const OfChannels& of_channels) {
    const at::AutoGradMode unrecorded(false);
    at::Tensor to = at::empty_like(from, at::MemoryFormat::ChannelsLast);
    kernels::batch_norm(norm_args(from, to, of_channels, true), torch_pool(), tier()->options.isa);
    return to;
  }
};

}  // namespace

std::optional<at::Tensor> fused_batch_norm(const BatchNormCall& call) {
  if (!fits(call)) return std::nullopt;
  return FusedBatchNorm::apply(call.from, call.residual, call.weight, call.bias, &call);
}

}  // namespace ipexrun::preload
