// gelu, tanh, sigmoid and silu. In-place and out= overloads stay stock's: computing aside and copying would cost what is gained.
#include "preload/plugin/adapters/activation_call.h"

#include <ATen/ops/gelu_cpu_dispatch.h>
#include <ATen/ops/sigmoid_cpu_dispatch.h>
#include <ATen/ops/silu_cpu_dispatch.h>
#include <ATen/ops/tanh_cpu_dispatch.h>

#include "preload/plugin/adapters.h"
#include "preload/plugin/answer.h"

namespace ipexrun::preload::adapters {
namespace {

/// Elements below which stock needs about what finding the site costs.
constexpr std::int64_t kWorthwhileActivation = 4096;

bool small(const at::Tensor& x) { return x.scalar_type() == at::kFloat && x.numel() < kWorthwhileActivation; }

bool describe(ActivationCall* call, const at::Tensor& x, kernels::Activation kind) {
  call->x = &x;
  call->kind = kind;
  return call->is(Declined::kDtype, dtype_fits(x.scalar_type())) && call->is(Declined::kKind, plain(x)) &&
         call->is(Declined::kSmall,
                  x.numel() >= kWorthwhileActivation || (x.numel() > 0 && tier()->forced.load(std::memory_order_relaxed) != kStock)) &&
         call->is(Declined::kLayout, x.is_non_overlapping_and_dense());
}

}  // namespace

at::Tensor gelu(const at::Tensor& self, c10::string_view approximate) {
  if (left_as_small(Op::kGelu, small(self))) return at::cpu::gelu(self, approximate);
  return answer<ActivationCall>(
             Op::kGelu,
             [&](ActivationCall* call) {
               const bool exact = approximate == "none";
               if (!exact && approximate != "tanh") return false;
               return describe(call, self, exact ? kernels::Activation::kGelu : kernels::Activation::kGeluTanh);
             },
             [&]() -> Outputs { return at::cpu::gelu(self, approximate); })
      .first;
}

at::Tensor tanh(const at::Tensor& self) {
  if (left_as_small(Op::kTanh, small(self))) return at::cpu::tanh(self);
  return answer<ActivationCall>(
             Op::kTanh, [&](ActivationCall* call) { return describe(call, self, kernels::Activation::kTanh); },
             [&]() -> Outputs { return at::cpu::tanh(self); })
      .first;
}

at::Tensor sigmoid(const at::Tensor& self) {
  if (left_as_small(Op::kSigmoid, small(self))) return at::cpu::sigmoid(self);
  return answer<ActivationCall>(
             Op::kSigmoid, [&](ActivationCall* call) { return describe(call, self, kernels::Activation::kSigmoid); },
             [&]() -> Outputs { return at::cpu::sigmoid(self); })
      .first;
}

at::Tensor silu(const at::Tensor& self) {
  if (left_as_small(Op::kSilu, small(self))) return at::cpu::silu(self);
  return answer<ActivationCall>(
             Op::kSilu, [&](ActivationCall* call) { return describe(call, self, kernels::Activation::kSilu); },
             [&]() -> Outputs { return at::cpu::silu(self); })
      .first;
}

}  // namespace ipexrun::preload::adapters
