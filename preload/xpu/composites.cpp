// Operators that torch routes on xpu to kernels which its CPU wheel does not have.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <chrono>

#include "preload/xpu/convolution.h"
#include "preload/xpu/fallback.h"
#include "preload/xpu/operators.h"
#include "preload/xpu/transfer.h"

namespace ipexrun::preload::xpu {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

bool there(const OptionalTensor& tensor) { return tensor && tensor->defined(); }
Tensor plus(const Tensor& gates, const OptionalTensor& bias) { return there(bias) ? gates + *bias : gates; }

// Method of the cells: torch's documented equations of nn.LSTMCell and nn.GRUCell; the workspace holds what the backward pass needs.
std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& cell,
                                             const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  const std::vector<Tensor> gates = plus(plus(input_gates + hidden_gates, input_bias), hidden_bias).chunk(4, 1);
  const Tensor in = gates[0].sigmoid(), forget = gates[1].sigmoid(), fresh = gates[2].tanh(), out = gates[3].sigmoid();
  const Tensor next_cell = forget * cell + in * fresh;
  return {out * next_cell.tanh(), next_cell, at::cat({in, forget, fresh, out}, 1)};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(const OptionalTensor& grad_hidden, const OptionalTensor& grad_cell,
                                                      const Tensor& cell, const Tensor& next_cell, const Tensor& workspace, bool has_bias) {
  if (!there(grad_hidden) && !there(grad_cell)) return {};
  const std::vector<Tensor> gates = workspace.chunk(4, 1);
  const Tensor &in = gates[0], &forget = gates[1], &fresh = gates[2], &out = gates[3];
  const Tensor squashed = next_cell.tanh();
  Tensor grad = there(grad_cell) ? *grad_cell : at::zeros_like(next_cell);
  Tensor grad_out = at::zeros_like(out);
  if (there(grad_hidden)) {
    grad_out = *grad_hidden * squashed * out * (1 - out);
    grad = grad + *grad_hidden * out * (1 - squashed * squashed);
  }
  const Tensor grad_gates =
      at::cat({grad * fresh * in * (1 - in), grad * cell * forget * (1 - forget), grad * in * (1 - fresh * fresh), grad_out}, 1);
  return {grad_gates, grad * forget, has_bias ? grad_gates.sum(0) : Tensor()};
}

std::tuple<Tensor, Tensor> gru_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hidden,
                                    const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  const std::vector<Tensor> from_input = plus(input_gates, input_bias).chunk(3, 1);
  const std::vector<Tensor> from_hidden = plus(hidden_gates, hidden_bias).chunk(3, 1);
  const Tensor reset = (from_input[0] + from_hidden[0]).sigmoid();
  const Tensor update = (from_input[1] + from_hidden[1]).sigmoid();
  const Tensor fresh = (from_input[2] + reset * from_hidden[2]).tanh();
  return {fresh + update * (hidden - fresh), at::cat({reset, update, fresh, hidden, from_hidden[2]}, 1)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(const Tensor& grad, const Tensor& workspace, bool has_bias) {
  const std::vector<Tensor> kept = workspace.chunk(5, 1);
  const Tensor &reset = kept[0], &update = kept[1], &fresh = kept[2], &hidden = kept[3], &from_hidden = kept[4];
  const Tensor grad_update = grad * (hidden - fresh) * update * (1 - update);
  const Tensor grad_fresh = grad * (1 - update) * (1 - fresh * fresh);
  const Tensor grad_reset = grad_fresh * from_hidden * reset * (1 - reset);
  const Tensor grad_input = at::cat({grad_reset, grad_update, grad_fresh}, 1);
  const Tensor grad_hidden = at::cat({grad_reset, grad_update, grad_fresh * reset}, 1);
  return {grad_input, grad_hidden, grad * update, has_bias ? grad_input.sum(0) : Tensor(), has_bias ? grad_hidden.sum(0) : Tensor()};
}

/// Through the CPU, in float where the type is a small one.
class Detour {
 public:
  Detour(const char* name, const Tensor& like)
      : name_(name), device_(like.device()), type_(like.scalar_type()), start_((finish_kernels(), now())) {}
  Tensor in(const Tensor& tensor) {
    bytes_ += tensor.nbytes();
    const Tensor host = to_cpu(tensor).resolve_conj().resolve_neg();
    return small() ? host.to(at::kFloat) : host;
  }
  OptionalTensor in(const OptionalTensor& tensor) { return there(tensor) ? OptionalTensor(in(*tensor)) : std::nullopt; }
  Tensor out(const Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    bytes_ += tensor.nbytes();
    return to_xpu(small() ? tensor.to(type_) : tensor, device_);
  }
  ~Detour() { count_fallback(name_, std::chrono::duration<double>(now() - start_).count(), bytes_); }

 private:
  [[nodiscard]] bool small() const { return type_ == at::kHalf || type_ == at::kBFloat16; }
  static std::chrono::steady_clock::time_point now() { return std::chrono::steady_clock::now(); }
  const char* name_;
  c10::Device device_;
  at::ScalarType type_;
  std::chrono::steady_clock::time_point start_;
  std::size_t bytes_ = 0;
};

Tensor convolution(const Tensor& input, const Tensor& weight, const OptionalTensor& bias, at::IntArrayRef stride, at::IntArrayRef padding,
                   at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding, std::int64_t groups) {
  try {
    Tensor out;
    if (convolve(input, weight, bias.value_or(Tensor()), {stride, padding, dilation, transposed, output_padding, groups}, out)) return out;
  } catch (const ::ipexrun::xpu::DeviceError& problem) {
    no_kernel("aten::convolution_overrideable", problem.what());
  }
  Detour detour("aten::convolution_overrideable", input);
  return detour.out(
      at::convolution(detour.in(input), detour.in(weight), detour.in(bias), stride, padding, dilation, transposed, output_padding, groups));
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(const Tensor& grad, const Tensor& input, const Tensor& weight,
                                                        at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation,
                                                        bool transposed, at::IntArrayRef output_padding, std::int64_t groups,
                                                        std::array<bool, 3> mask) {
  try {
    std::array<Tensor, 3> out;
    if (convolve_backward(grad, input, weight, {stride, padding, dilation, transposed, output_padding, groups}, mask, out))
      return {out[0], out[1], out[2]};
  } catch (const ::ipexrun::xpu::DeviceError& problem) {
    no_kernel("aten::convolution_backward_overrideable", problem.what());
  }
  Detour detour("aten::convolution_backward_overrideable", input);
  const std::int64_t channels = transposed ? weight.size(1) * groups : weight.size(0);
  const auto [grad_input, grad_weight, grad_bias] =
      at::convolution_backward(detour.in(grad), detour.in(input), detour.in(weight), at::OptionalIntArrayRef(at::IntArrayRef(&channels, 1)),
                               stride, padding, dilation, transposed, output_padding, groups, mask);
  return {detour.out(grad_input), detour.out(grad_weight), detour.out(grad_bias)};
}

}  // namespace

void register_composites() {
  static auto* aten = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::XPU, __FILE__, __LINE__);
  aten->impl("_thnn_fused_lstm_cell", &lstm_cell);
  aten->impl("_thnn_fused_lstm_cell_backward_impl", &lstm_cell_backward);
  aten->impl("_thnn_fused_gru_cell", &gru_cell);
  aten->impl("_thnn_fused_gru_cell_backward", &gru_cell_backward);
  aten->impl("convolution_overrideable", &convolution);
  aten->impl("convolution_backward_overrideable", &convolution_backward);
}

}  // namespace ipexrun::preload::xpu
