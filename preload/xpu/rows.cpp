// Operators over rows: sums and means, softmax, layer norm. Each takes its arguments from torch's stack; what it does not know runs on the
// CPU.
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <algorithm>

#include "preload/xpu/fallback.h"
#include "preload/xpu/grid.h"
#include "preload/xpu/operators.h"

namespace ipexrun::preload::xpu {
namespace {

using at::Tensor;

constexpr std::size_t kLanes = 64;  // LANES of rows.cl

bool usable(const Tensor& tensor, bool half) {
  if (!tensor.defined() || !tensor.is_xpu() || tensor.layout() != at::kStrided || tensor.is_conj() || tensor.is_neg()) return false;
  const at::ScalarType type = tensor.scalar_type();
  if (type == at::kDouble) return unit_of(tensor).device->facts().has_fp64;
  return type == at::kFloat || (half && (type == at::kHalf || type == at::kBFloat16));
}

bool wide(const Tensor& tensor) { return tensor.scalar_type() == at::kDouble; }
Argument number(const Tensor& like, double value) {
  return wide(like) ? Argument::value(value) : Argument::value(static_cast<float>(value));
}
Argument flag(bool value) { return Argument::value(static_cast<std::int32_t>(value)); }
Argument count(std::int64_t value) { return Argument::value(value); }
Argument read(const Tensor& tensor) { return Argument::memory(tensor.const_data_ptr()); }
Argument write(const Tensor& tensor) { return Argument::memory(tensor.mutable_data_ptr()); }

Kernel& kernel(const Tensor& in, const char* name) {
  const std::string type = kernel_type(in.scalar_type());
  return unit_of(in).device->kernel("rows", "-DREAL -DT=" + type + " -DOUT=" + type + " -DX=" + (wide(in) ? "double" : "float"), name);
}
void run_rows(const Tensor& on, Kernel& one, const std::vector<Argument>& arguments, std::int64_t rows) {
  unit_of(on).device->launch(one, arguments, {static_cast<std::size_t>(rows) * kLanes, 1, 1}, {kLanes, 1, 1}, stream_of(on));
}

// ---- softmax

/// (in, dim, half_to_float, out) or, backward, (grad, result, dim, input_dtype, grad_input).
bool softmax(const c10::IValue* given, bool backward, const char* name) {
  const Tensor first = given[0].toTensor();
  const Tensor second = backward ? given[1].toTensor() : first;
  Tensor out = given[backward ? 4 : 3].toTensor();
  if (!usable(first, true) || !usable(second, true) || !usable(out, true)) return false;
  if (first.scalar_type() != out.scalar_type() || second.scalar_type() != out.scalar_type() || first.dim() == 0) return false;
  const std::int64_t dim = at::maybe_wrap_dim(given[backward ? 2 : 1].toInt(), first.dim());
  if (out.sizes() != first.sizes()) out.resize_(first.sizes());
  if (out.numel() == 0) return true;
  const auto rows_last = [&](const Tensor& tensor) { return tensor.movedim(dim, -1).contiguous(); };
  const Tensor a = rows_last(first), b = backward ? rows_last(second) : a;
  const bool direct = dim == first.dim() - 1 && out.is_contiguous();
  const Tensor to = direct ? out : at::empty(a.sizes(), out.options());
  const std::int64_t n = a.size(-1);
  std::vector<Argument> arguments{write(to), read(a)};
  if (backward) arguments.push_back(read(b));
  arguments.push_back(count(n));
  run_rows(to, kernel(a, name), arguments, a.numel() / n);
  if (!direct) out.copy_(to.movedim(-1, dim));
  return true;
}
bool softmax_forward(const c10::IValue* given, std::vector<c10::IValue>& results) {
  if (!softmax(given, false, "softmax")) return false;
  results.push_back(given[3]);
  return true;
}
bool log_softmax_forward(const c10::IValue* given, std::vector<c10::IValue>& results) {
  if (!softmax(given, false, "log_softmax")) return false;
  results.push_back(given[3]);
  return true;
}
bool softmax_backward(const c10::IValue* given, std::vector<c10::IValue>& results) {
  if (!softmax(given, true, "softmax_backward")) return false;
  results.push_back(given[4]);
  return true;
}
bool log_softmax_backward(const c10::IValue* given, std::vector<c10::IValue>& results) {
  if (!softmax(given, true, "log_softmax_backward")) return false;
  results.push_back(given[4]);
  return true;
}

// ---- sum and mean: (self, dim, keepdim, dtype, out)

bool reduce(const c10::IValue* given, bool mean) {
  const Tensor self = given[0].toTensor();
  Tensor out = given[4].toTensor();
  const at::ScalarType to = out.scalar_type();
  const bool integers = to == at::kLong && at::isIntegralType(self.scalar_type(), true) && !mean;
  if (!usable(out, true) && !integers) return false;
  if (!self.is_xpu() || self.layout() != at::kStrided || self.is_conj() || self.is_neg() || kernel_type(self.scalar_type()) == nullptr)
    return false;
  if (at::isIntegralType(self.scalar_type(), true) != integers || self.numel() == 0) return false;
  if (wide(self) && to != at::kDouble) return false;
  std::vector<std::int64_t> dims = given[1].isNone() ? std::vector<std::int64_t>() : given[1].toIntVector();
  std::vector<bool> reduced(static_cast<std::size_t>(self.dim()), dims.empty());
  if (self.dim() == 0) dims.clear();
  for (const std::int64_t dim : dims) reduced[static_cast<std::size_t>(at::maybe_wrap_dim(dim, self.dim()))] = true;
  std::vector<std::int64_t> kept, gone, result;
  std::int64_t n = 1;
  for (std::int64_t d = 0; d < self.dim(); ++d) {
    const bool goes = reduced[static_cast<std::size_t>(d)];
    (goes ? gone : kept).push_back(d);
    if (goes) n *= self.size(d);
    if (!goes || given[2].toBool()) result.push_back(goes ? 1 : self.size(d));
  }
  if (out.sizes() != at::IntArrayRef(result)) out.resize_(result);
  const Tensor target = out.is_contiguous() ? out : at::empty(result, out.options());
  ::ipexrun::xpu::Device& device = *unit_of(out).device;
  const char* sum = integers ? "long" : to == at::kDouble ? "double" : "float";
  const std::string options = std::string("-DT=") + kernel_type(self.scalar_type()) + " -DOUT=" + kernel_type(to) + " -DX=" + sum;
  const double factor = mean ? 1.0 / static_cast<double>(n) : 1.0;
  const Argument scale = integers ? Argument::value(std::int64_t{1}) : number(out, factor);
  // Leading dimensions of a contiguous tensor are summed where they lie; others are brought to the end.
  const bool leading = self.is_contiguous() && !kept.empty() && gone.back() + 1 == static_cast<std::int64_t>(gone.size());
  if (leading) {
    const std::int64_t columns = self.numel() / n;
    device.launch(device.kernel("rows", options, "column_sum"),
                  std::vector<Argument>{write(target), read(self), count(n), count(columns), scale},
                  {static_cast<std::size_t>(columns), 1, 1}, {kLanes, 1, 1}, stream_of(out));
  } else {
    std::vector<std::int64_t> order = kept;
    order.insert(order.end(), gone.begin(), gone.end());
    const Tensor rows = self.permute(order).contiguous();
    run_rows(out, device.kernel("rows", options, "row_sum"), {write(target), read(rows), count(n), scale}, rows.numel() / n);
  }
  if (!target.is_same(out)) out.copy_(target);
  return true;
}
bool sum(const c10::IValue* given, std::vector<c10::IValue>& results) {
  if (!reduce(given, false)) return false;
  results.push_back(given[4]);
  return true;
}
bool mean(const c10::IValue* given, std::vector<c10::IValue>& results) {
  if (!reduce(given, true)) return false;
  results.push_back(given[4]);
  return true;
}

// ---- layer norm, of float and double

Tensor optional(const c10::IValue& value) { return value.isNone() ? Tensor() : value.toTensor(); }
bool fits(const Tensor& parameter, const Tensor& like) {
  return !parameter.defined() || (usable(parameter, false) && parameter.scalar_type() == like.scalar_type());
}
Tensor packed(const Tensor& tensor) { return tensor.defined() ? tensor.contiguous() : tensor; }

/// (input, normalized_shape, weight, bias, eps) -> out, mean, rstd
bool layer_norm(const c10::IValue* given, std::vector<c10::IValue>& results) {
  const Tensor input = given[0].toTensor();
  const std::vector<std::int64_t> shape = given[1].toIntVector();
  const Tensor weight = packed(optional(given[2])), bias = packed(optional(given[3]));
  const auto over = static_cast<std::int64_t>(shape.size());
  if (!usable(input, false) || !fits(weight, input) || !fits(bias, input) || input.numel() == 0 || over == 0 || input.dim() < over ||
      input.sizes().slice(static_cast<std::size_t>(input.dim() - over)) != at::IntArrayRef(shape) ||
      (weight.defined() && weight.sizes() != at::IntArrayRef(shape)) || (bias.defined() && bias.sizes() != at::IntArrayRef(shape)))
    return false;
  const Tensor in = input.contiguous();
  std::int64_t n = 1;
  for (const std::int64_t size : shape) n *= size;
  std::vector<std::int64_t> each = in.sizes().vec();
  std::fill(each.end() - over, each.end(), 1);
  const Tensor out = at::empty(in.sizes(), in.options()), middle = at::empty(each, in.options()), scale = at::empty(each, in.options());
  run_rows(in, kernel(in, "layer_norm"),
           {write(out), write(middle), write(scale), read(in), read(weight.defined() ? weight : in), read(bias.defined() ? bias : in),
            flag(weight.defined()), flag(bias.defined()), count(n), number(in, given[4].toDouble())},
           in.numel() / n);
  results = {out, middle, scale};
  return true;
}

/// (grad, input, normalized_shape, mean, rstd, weight, bias, mask) -> input's, weight's, bias's
bool layer_norm_backward(const c10::IValue* given, std::vector<c10::IValue>& results) {
  const Tensor input = given[1].toTensor();
  const Tensor weight = packed(optional(given[5]));
  const c10::List<bool> mask = given[7].toBoolList();
  for (const int i : {0, 1, 3, 4})
    if (!usable(given[i].toTensor(), false) || given[i].toTensor().scalar_type() != input.scalar_type()) return false;
  if (!fits(weight, input) || input.numel() == 0) return false;
  const Tensor in = input.contiguous(), grad = given[0].toTensor().contiguous(), middle = given[3].toTensor().contiguous(),
               scale = given[4].toTensor().contiguous();
  const std::vector<std::int64_t> shape = given[2].toIntVector();
  std::int64_t n = 1;
  for (const std::int64_t size : shape) n *= size;
  const std::int64_t rows = in.numel() / n;
  Tensor for_input, for_weight, for_bias;
  if (mask[0]) {
    for_input = at::empty(in.sizes(), in.options());
    run_rows(in, kernel(in, "layer_norm_backward"),
             {write(for_input), read(grad), read(in), read(middle), read(scale), read(weight.defined() ? weight : in),
              flag(weight.defined()), count(n)},
             rows);
  }
  if (mask[1]) for_weight = at::empty(shape, in.options());
  if (mask[2]) for_bias = at::empty(shape, in.options());
  if (mask[1] || mask[2]) {
    const Tensor& any = mask[1] ? for_weight : for_bias;
    unit_of(in).device->launch(
        kernel(in, "layer_norm_parameters"),
        std::vector<Argument>{write(mask[1] ? for_weight : any), write(mask[2] ? for_bias : any), read(grad), read(in), read(middle),
                              read(scale), flag(mask[1]), flag(mask[2]), count(rows), count(n)},
        {static_cast<std::size_t>(n), 1, 1}, {kLanes, 1, 1}, stream_of(in));
  }
  results = {for_input, for_weight, for_bias};
  return true;
}

/// A function of ours behind torch's boxed form.
template <bool (*Function)(const c10::IValue*, std::vector<c10::IValue>&)>
void boxed(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const std::size_t arguments = op.schema().arguments().size();
  std::vector<c10::IValue> results;
  const c10::IValue* given = &*(stack->end() - static_cast<std::ptrdiff_t>(arguments));
  if (!attempt(op, [&] { return Function(given, results); })) return run_on_cpu(op, keys, stack);
  stack->erase(stack->end() - static_cast<std::ptrdiff_t>(arguments), stack->end());
  for (c10::IValue& value : results) stack->push_back(std::move(value));
}

}  // namespace

void register_rows() {
  static auto* aten = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::XPU, __FILE__, __LINE__);
  aten->impl("_softmax.out", torch::CppFunction::makeFromBoxedFunction<&boxed<softmax_forward>>());
  aten->impl("_log_softmax.out", torch::CppFunction::makeFromBoxedFunction<&boxed<log_softmax_forward>>());
  aten->impl("_softmax_backward_data.out", torch::CppFunction::makeFromBoxedFunction<&boxed<softmax_backward>>());
  aten->impl("_log_softmax_backward_data.out", torch::CppFunction::makeFromBoxedFunction<&boxed<log_softmax_backward>>());
  aten->impl("sum.IntList_out", torch::CppFunction::makeFromBoxedFunction<&boxed<sum>>());
  aten->impl("mean.out", torch::CppFunction::makeFromBoxedFunction<&boxed<mean>>());
  aten->impl("native_layer_norm", torch::CppFunction::makeFromBoxedFunction<&boxed<layer_norm>>());
  aten->impl("native_layer_norm_backward", torch::CppFunction::makeFromBoxedFunction<&boxed<layer_norm_backward>>());
}

}  // namespace ipexrun::preload::xpu
