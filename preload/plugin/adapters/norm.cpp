// _softmax and native_layer_norm. (rms_norm is made of several operations on the CPU and has no leaf of its own.)
// Before the generated header, which names it and does not include it.
#include <c10/core/SymIntArrayRef.h>

#include <ATen/ops/_softmax_cpu_dispatch.h>
#include <ATen/ops/native_layer_norm_cpu_dispatch.h>

#include "preload/plugin/adapters.h"
#include "preload/plugin/adapters/norm_call.h"
#include "preload/plugin/answer.h"

namespace ipexrun::preload::adapters {
namespace {

/// Elements below which stock needs about what finding the site costs.
constexpr std::int64_t kWorthwhileNorm = 4096;

bool few(const at::Tensor& x) { return x.scalar_type() == at::kFloat && x.numel() < kWorthwhileNorm; }

bool describe_x(NormCall* call, const at::Tensor& x, std::int64_t columns) {
  call->x = &x;
  if (!call->is(Declined::kDtype, dtype_fits(x.scalar_type())) || !call->is(Declined::kKind, plain(x))) return false;
  if (!call->is(Declined::kForm, columns > 0 && x.numel() > 0)) return false;
  call->columns = columns;
  call->rows = x.numel() / columns;
  return call->is(Declined::kSmall, x.numel() >= kWorthwhileNorm || tier()->forced.load(std::memory_order_relaxed) != kStock) &&
         call->is(Declined::kLayout, x.is_contiguous());
}

/// A weight or bias that may be absent: one element a column, of x's type or, with bfloat16 x, float32.
bool describe_parameter(NormCall* call, const at::Tensor** to, const std::optional<at::Tensor>& from) {
  if (!from.has_value() || !from->defined()) return true;
  *to = &*from;
  return call->is(Declined::kKind, plain(*from)) && call->is(Declined::kLayout, from->is_contiguous()) &&
         call->is(Declined::kForm,
                  from->sizes() == call->x->sizes().slice(static_cast<std::size_t>(call->x->dim() - call->normalized_dims))) &&
         call->is(Declined::kDtype, from->scalar_type() == call->x->scalar_type() ||
                                        (call->x->scalar_type() == at::kBFloat16 && from->scalar_type() == at::kFloat));
}

/// The last dimensions of x are those of `shape`; their product is what a row has.
bool describe_shape(NormCall* call, const at::Tensor& x, c10::SymIntArrayRef shape, std::int64_t* columns) {
  const auto dims = static_cast<std::int64_t>(shape.size());
  if (dims < 1 || dims > x.dim()) return false;
  *columns = 1;
  for (std::int64_t i = 0; i < dims; ++i) {
    const auto size = shape[static_cast<std::size_t>(i)].maybe_as_int();
    if (!size || *size != x.size(x.dim() - dims + i)) return false;
    *columns *= *size;
  }
  call->normalized_dims = dims;
  return true;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> as_tuple(Outputs outputs) {
  return {std::move(outputs.first), std::move(outputs.more[0]), std::move(outputs.more[1])};
}

}  // namespace

at::Tensor softmax(const at::Tensor& self, std::int64_t dim, bool half_to_float) {
  if (left_as_small(Op::kSoftmax, few(self))) return at::cpu::_softmax(self, dim, half_to_float);
  return answer<NormCall>(
             Op::kSoftmax,
             [&](NormCall* call) {
               if (half_to_float || self.dim() < 1 || (dim != -1 && dim != self.dim() - 1)) return false;
               return describe_x(call, self, self.size(-1));
             },
             [&]() -> Outputs { return at::cpu::_softmax(self, dim, half_to_float); })
      .first;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> native_layer_norm(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                                                                 const std::optional<at::Tensor>& weight,
                                                                 const std::optional<at::Tensor>& bias, double eps) {
  if (left_as_small(Op::kNativeLayerNorm, few(input))) return at::cpu::native_layer_norm_symint(input, normalized_shape, weight, bias, eps);
  return as_tuple(answer<NormCall>(
      Op::kNativeLayerNorm,
      [&](NormCall* call) {
        std::int64_t columns = 0;
        call->layer_norm = true;
        call->eps = eps;
        if (!describe_shape(call, input, normalized_shape, &columns) || !describe_x(call, input, columns)) return false;
        if (!describe_parameter(call, &call->gain, weight) || !describe_parameter(call, &call->bias, bias)) return false;
        return call->is(Declined::kDtype,
                        call->gain == nullptr || call->bias == nullptr || call->gain->scalar_type() == call->bias->scalar_type());
      },
      [&]() -> Outputs {
        auto [y, mean, rstd] = at::cpu::native_layer_norm_symint(input, normalized_shape, weight, bias, eps);
        Outputs outputs(std::move(y));
        outputs.more = {std::move(mean), std::move(rstd)};
        return outputs;
      }));
}

}  // namespace ipexrun::preload::adapters
