#include "preload/plugin/split_weights.h"

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mv_compositeexplicitautograd_dispatch.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <tuple>

#include "kernels/split_float.h"
#include "preload/plugin/adapters.h"
#include "preload/plugin/dispatcher.h"
#include "preload/plugin/register.h"
#include "preload/plugin/tier.h"

namespace ipexrun::preload {
namespace {

bool is_half(const at::Tensor& one, const at::Tensor& beside) {
  return one.scalar_type() == at::kBFloat16 && beside.scalar_type() == at::kFloat;
}

/// The weight's values in float32, for one call.
class Whole {
 public:
  Whole(const at::Tensor& half, const at::Tensor& beside) : value_(half.to(at::kFloat)) {
    const bool recorded = c10::GradMode::is_enabled() && (half.requires_grad() || beside.requires_grad());
    if (recorded && half.requires_grad()) value_.set_requires_grad(true);
    if (!recorded) off_.emplace();  // the tier would keep a pack of a tensor that is gone after the call
  }
  operator const at::Tensor&() const { return value_; }

 private:
  at::Tensor value_;
  std::optional<TierOff> off_;
};

at::Tensor addmm(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b, const at::Scalar& beta, const at::Scalar& alpha) {
  if (is_half(b, a)) return adapters::addmm(self, a, Whole(b, a), beta, alpha);
  if (is_half(a, b)) return adapters::addmm(self, Whole(a, b), b, beta, alpha);
  return adapters::addmm(self, a, b, beta, alpha);
}

at::Tensor mm(const at::Tensor& a, const at::Tensor& b) {
  if (is_half(b, a)) return adapters::mm(a, Whole(b, a));
  if (is_half(a, b)) return adapters::mm(Whole(a, b), b);
  return adapters::mm(a, b);
}

at::Tensor bmm(const at::Tensor& a, const at::Tensor& b) {
  if (is_half(b, a)) return adapters::bmm(a, Whole(b, a));
  if (is_half(a, b)) return adapters::bmm(Whole(a, b), b);
  return adapters::bmm(a, b);
}

at::Tensor mv(const at::Tensor& matrix, const at::Tensor& vector) {
  if (is_half(matrix, vector)) return at::compositeexplicitautograd::mv(Whole(matrix, vector), vector);
  return at::compositeexplicitautograd::mv(matrix, vector);
}

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias, c10::SymIntArrayRef stride,
                       c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed, c10::SymIntArrayRef output_padding,
                       c10::SymInt groups) {
  if (is_half(weight, input)) {
    return adapters::convolution(input, Whole(weight, input), bias, stride, padding, dilation, transposed, output_padding,
                                 std::move(groups));
  }
  return adapters::convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, std::move(groups));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(const at::Tensor& grad_output, const at::Tensor& input,
                                                                    const at::Tensor& weight, at::OptionalSymIntArrayRef bias_sizes,
                                                                    c10::SymIntArrayRef stride, c10::SymIntArrayRef padding,
                                                                    c10::SymIntArrayRef dilation, bool transposed,
                                                                    c10::SymIntArrayRef output_padding, c10::SymInt groups,
                                                                    std::array<bool, 3> output_mask) {
  if (is_half(weight, grad_output)) {
    const at::Tensor whole = weight.to(at::kFloat);
    return adapters::convolution_backward(grad_output, input, whole, bias_sizes, stride, padding, dilation, transposed, output_padding,
                                          std::move(groups), output_mask);
  }
  return adapters::convolution_backward(grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding,
                                        std::move(groups), output_mask);
}

bool register_once() {
  for (const char* name : {"aten::addmm", "aten::mm", "aten::bmm", "aten::mv", "aten::convolution", "aten::convolution_backward"}) {
    const auto op = c10::Dispatcher::singleton().findSchema({name, ""});
    if (!op || !only_stock_answers(*op)) return false;
  }
  NoWarnings quiet;
  torch::Library& library = cpu_library();
  library.impl("addmm", TORCH_FN(addmm));
  library.impl("mm", TORCH_FN(mm));
  library.impl("bmm", TORCH_FN(bmm));
  library.impl("mv", TORCH_FN(mv));
  library.impl("convolution", TORCH_FN(convolution));
  library.impl("convolution_backward", TORCH_FN(convolution_backward));
  return true;
}

}  // namespace

bool multiply_mixed() {
  static const bool can = register_once();
  return can;
}

constexpr std::int64_t kGrain = 1 << 15;

void split_into(const at::Tensor& value, at::Tensor& high, at::Tensor& low) {
  const float* from = value.const_data_ptr<float>();
  auto* to_high = reinterpret_cast<std::uint16_t*>(high.data_ptr<at::BFloat16>());
  auto* to_low = low.data_ptr<std::int16_t>();
  at::parallel_for(0, value.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const kernels::SplitFloat halves = kernels::split_float(from[i]);
      to_high[i] = halves.high;
      to_low[i] = halves.low;
    }
  });
}

at::Tensor join(const at::Tensor& high, const at::Tensor& low) {
  at::Tensor value = at::empty_like(high, high.options().dtype(at::kFloat), at::MemoryFormat::Preserve);
  const auto* from_high = reinterpret_cast<const std::uint16_t*>(high.const_data_ptr<at::BFloat16>());
  const auto* from_low = low.const_data_ptr<std::int16_t>();
  float* to = value.data_ptr<float>();
  at::parallel_for(0, value.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) to[i] = kernels::join_float({from_high[i], from_low[i]});
  });
  return value;
}

}  // namespace ipexrun::preload
