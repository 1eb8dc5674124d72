// native_group_norm of contiguous tensors, and native_batch_norm with known moments (a module in eval mode) of contiguous ones and of
// channels last. Training, and overloads into out=, stay stock's.
// Before the generated header, which names it and does not include it.
#include <c10/core/SymInt.h>

#include <ATen/ops/native_batch_norm_cpu_dispatch.h>
#include <ATen/ops/native_group_norm_cpu_dispatch.h>

#include "preload/plugin/adapters.h"
#include "preload/plugin/adapters/channel_norm_call.h"
#include "preload/plugin/answer.h"

namespace ipexrun::preload::adapters {
namespace {

/// Elements below which stock needs about what finding the site costs.
constexpr std::int64_t kWorthwhileChannelNorm = 4096;

bool describe_x(ChannelNormCall* call, const at::Tensor& x) {
  call->x = &x;
  call->declined = Declined::kForm;
  if (!call->is(Declined::kDtype, dtype_fits(x.scalar_type())) || !call->is(Declined::kKind, plain(x))) return false;
  if (!call->is(Declined::kForm, x.dim() >= 2 && x.numel() > 0)) return false;
  call->parameters = x.scalar_type();
  call->images = x.size(0);
  call->channels = x.size(1);
  call->pixels = x.numel() / call->images / call->channels;
  return call->is(Declined::kSmall, x.numel() >= kWorthwhileChannelNorm || tier()->forced.load(std::memory_order_relaxed) != kStock);
}

bool contiguous(const at::Tensor& x) { return x.is_contiguous() && x.suggest_memory_format() == at::MemoryFormat::Contiguous; }

/// One element a channel. The first one met sets the dtype that all have: that of x or, with bfloat16 x, float32.
bool describe_parameter(ChannelNormCall* call, const at::Tensor** to, const std::optional<at::Tensor>& from, bool* met) {
  if (!from.has_value() || !from->defined()) return true;
  *to = &*from;
  const at::ScalarType dtype = from->scalar_type();
  if (!call->is(Declined::kKind, plain(*from)) || !call->is(Declined::kLayout, from->is_contiguous())) return false;
  if (!call->is(Declined::kForm, from->dim() == 1 && from->size(0) == call->channels)) return false;
  const bool fits = *met ? dtype == call->parameters
                         : dtype == call->x->scalar_type() || (call->x->scalar_type() == at::kBFloat16 && dtype == at::kFloat);
  call->parameters = dtype;
  *met = true;
  return call->is(Declined::kDtype, fits);
}

Outputs as_outputs(std::tuple<at::Tensor, at::Tensor, at::Tensor> from) {
  Outputs outputs(std::move(std::get<0>(from)));
  outputs.more = {std::move(std::get<1>(from)), std::move(std::get<2>(from))};
  return outputs;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> three_of(Outputs outputs) {
  return {std::move(outputs.first), std::move(outputs.more[0]), std::move(outputs.more[1])};
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> native_group_norm(const at::Tensor& input, const std::optional<at::Tensor>& weight,
                                                                 const std::optional<at::Tensor>& bias, c10::SymInt N, c10::SymInt C,
                                                                 c10::SymInt HxW, std::int64_t group, double eps) {
  return three_of(answer<ChannelNormCall>(
      Op::kNativeGroupNorm,
      [&](ChannelNormCall* call) {
        bool met = false;
        call->eps = eps;
        call->groups = group;
        return describe_x(call, input) &&
               call->is(Declined::kForm, N.maybe_as_int() == call->images && C.maybe_as_int() == call->channels &&
                                             HxW.maybe_as_int() == call->pixels && group > 0 && call->channels % group == 0) &&
               call->is(Declined::kLayout, contiguous(input)) && describe_parameter(call, &call->gain, weight, &met) &&
               describe_parameter(call, &call->bias, bias, &met);
      },
      [&]() -> Outputs { return as_outputs(at::cpu::native_group_norm_symint(input, weight, bias, N, C, HxW, group, eps)); }));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> native_batch_norm(const at::Tensor& input, const std::optional<at::Tensor>& weight,
                                                                 const std::optional<at::Tensor>& bias,
                                                                 const std::optional<at::Tensor>& running_mean,
                                                                 const std::optional<at::Tensor>& running_var, bool training,
                                                                 double momentum, double eps) {
  return three_of(answer<ChannelNormCall>(
      Op::kNativeBatchNorm,
      [&](ChannelNormCall* call) {
        bool met = false;
        call->eps = eps;
        if (training || !describe_x(call, input)) return false;
        const bool last = (input.dim() == 4 || input.dim() == 5) && input.suggest_memory_format() != at::MemoryFormat::Contiguous &&
                          input.is_contiguous(input.suggest_memory_format());
        call->adjacent = last || input.dim() == 2;
        return call->is(Declined::kLayout, last || contiguous(input)) && describe_parameter(call, &call->gain, weight, &met) &&
               describe_parameter(call, &call->bias, bias, &met) && describe_parameter(call, &call->mean, running_mean, &met) &&
               describe_parameter(call, &call->variance, running_var, &met) &&
               call->is(Declined::kForm, call->mean != nullptr && call->variance != nullptr);
      },
      [&]() -> Outputs {
        return as_outputs(at::cpu::native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps));
      }));
}

}  // namespace ipexrun::preload::adapters
