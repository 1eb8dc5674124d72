// Operators over rows: softmax, layer norm, group norm. Each takes its arguments from torch's stack; what it does not know runs on the
// CPU.
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "preload/xpu/operands.h"
#include "preload/xpu/operators.h"

namespace ipexrun::preload::xpu {
namespace {

using at::Tensor;

constexpr std::size_t kColumns = 16;  ///< that an item of layer_norm_parameters takes on a CPU

constexpr const char* kGrouped = " -DGROUPED";

at::ScalarType sum_type(const Tensor& tensor) { return wide(tensor) ? at::kDouble : at::kFloat; }

/// A work group for each of the rows of n elements. `option`: of rows.cl.
void run_rows(const Tensor& in, const char* name, const std::vector<Argument>& arguments, std::int64_t rows, std::int64_t n,
              const char* option = "") {
  const bool grouped = std::string_view(option) == kGrouped;
  const auto lanes = static_cast<std::size_t>(one_item_a_row(in) && !grouped ? 1 : lanes_for(in, n));
  Kernel& kernel =
      unit_of(in).device->kernel("rows", real_options(in) + " -DOUT=" + kernel_type(in.scalar_type()) + lanes_option(in, n) + option, name);
  unit_of(in).device->launch(kernel, arguments, {static_cast<std::size_t>(rows) * lanes, 1, 1}, {lanes, 1, 1}, stream_of(in));
}

// ---- softmax

/// (in, dim, half_to_float, out) or, backward, (grad, result, dim, input_dtype, grad_input).
bool softmax(Given given, bool backward, const char* name, const char* option = "") {
  const Tensor first = given[0].toTensor();
  const Tensor second = backward ? given[1].toTensor() : first;
  Tensor out = given[backward ? 4 : 3].toTensor();
  if (!is_real(first) || !is_real(second) || !is_real(out)) return false;
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
  run_rows(a, name, arguments, a.numel() / n, n, option);
  if (!direct) out.copy_(to.movedim(-1, dim));
  return true;
}
bool softmax_forward(Given given, Results& results) {
  if (!softmax(given, false, "softmax")) return false;
  results.push_back(given[3]);
  return true;
}
/// (in, dim, dtype)
bool safe_softmax(Given given, Results& results) {
  const Tensor in = given[0].toTensor();
  if (!is_real(in) || !given[2].isNone()) return false;
  results = {at::empty(in.sizes(), in.options())};
  const std::array<c10::IValue, 4> plain_form{in, given[1], false, results[0]};
  return softmax(plain_form.data(), false, "softmax", " -DSAFE");
}
bool log_softmax_forward(Given given, Results& results) {
  if (!softmax(given, false, "log_softmax")) return false;
  results.push_back(given[3]);
  return true;
}
bool softmax_backward(Given given, Results& results) {
  if (!softmax(given, true, "softmax_backward")) return false;
  results.push_back(given[4]);
  return true;
}
bool log_softmax_backward(Given given, Results& results) {
  if (!softmax(given, true, "log_softmax_backward")) return false;
  results.push_back(given[4]);
  return true;
}

// ---- layer norm, of float and double

bool fits(const Tensor& parameter, const Tensor& like) {
  return !parameter.defined() || (is_real(parameter) && parameter.scalar_type() == like.scalar_type());
}

/// (input, normalized_shape, weight, bias, eps) -> out, mean, rstd
bool layer_norm(Given given, Results& results) {
  const Tensor input = given[0].toTensor();
  const std::vector<std::int64_t> shape = given[1].toIntVector();
  const Tensor weight = packed(optional_tensor(given[2])), bias = packed(optional_tensor(given[3]));
  const auto over = static_cast<std::int64_t>(shape.size());
  if (!is_real(input) || !fits(weight, input) || !fits(bias, input) || input.numel() == 0 || over == 0 || input.dim() < over ||
      input.sizes().slice(static_cast<std::size_t>(input.dim() - over)) != at::IntArrayRef(shape) ||
      (weight.defined() && weight.sizes() != at::IntArrayRef(shape)) || (bias.defined() && bias.sizes() != at::IntArrayRef(shape)))
    return false;
  const Tensor in = input.contiguous();
  std::int64_t n = 1;
  for (const std::int64_t size : shape) n *= size;
  std::vector<std::int64_t> each = in.sizes().vec();
  std::fill(each.end() - over, each.end(), 1);
  const Tensor out = at::empty(in.sizes(), in.options()), middle = at::empty(each, in.options().dtype(sum_type(in))),
               scale = at::empty_like(middle);
  run_rows(in, "layer_norm",
           {write(out), write(middle), write(scale), read(in), read(weight.defined() ? weight : in), read(bias.defined() ? bias : in),
            flag(weight.defined()), flag(bias.defined()), count(n), number(in, given[4].toDouble())},
           in.numel() / n, n);
  results = {out, middle, scale};
  return true;
}

/// (grad, input, normalized_shape, mean, rstd, weight, bias, mask) -> input's, weight's, bias's
bool layer_norm_backward(Given given, Results& results) {
  const Tensor input = given[1].toTensor();
  const Tensor weight = packed(optional_tensor(given[5]));
  const c10::List<bool> mask = given[7].toBoolList();
  for (const int i : {0, 1, 3, 4}) {
    const at::ScalarType type = i < 3 ? input.scalar_type() : sum_type(input);
    if (!is_real(given[i].toTensor()) || given[i].toTensor().scalar_type() != type) return false;
  }
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
    run_rows(in, "layer_norm_backward",
             {write(for_input), read(grad), read(in), read(middle), read(scale), read(weight.defined() ? weight : in),
              flag(weight.defined()), count(n)},
             rows, n);
  }
  if (mask[1]) for_weight = at::empty(shape, in.options());
  if (mask[2]) for_bias = at::empty(shape, in.options());
  if (mask[1] || mask[2]) {
    const Tensor& any = mask[1] ? for_weight : for_bias;
    const std::string options = real_options(in) + " -DOUT=" + kernel_type(in.scalar_type()) + lanes_option(in, n);
    const bool lanes = unit_of(in).device->facts().lanes;  // groups of 16 columns and 16 rows there
    const auto columns = static_cast<std::size_t>(n);
    unit_of(in).device->launch(
        unit_of(in).device->kernel("rows", options, "layer_norm_parameters"),
        std::vector<Argument>{write(mask[1] ? for_weight : any), write(mask[2] ? for_bias : any), read(grad), read(in), read(middle),
                              read(scale), flag(mask[1]), flag(mask[2]), count(rows), count(n)},
        {lanes ? columns : (columns + kColumns - 1) / kColumns, lanes ? 16U : 1U, 1}, {lanes ? 16U : 1U, lanes ? 16U : 1U, 1},
        stream_of(in));
  }
  results = {for_input, for_weight, for_bias};
  return true;
}

// ---- group norm

struct Groups {
  std::int64_t images, channels, places, groups;
  [[nodiscard]] std::int64_t rows() const { return images * groups; }
  [[nodiscard]] std::int64_t of_row() const { return channels / groups * places; }
  [[nodiscard]] bool fit(const Tensor& in) const {
    return images > 0 && places > 0 && groups > 0 && channels % groups == 0 && images * channels * places == in.numel();
  }
};
Groups groups_of(Given given, int first) {
  return {given[first].toInt(), given[first + 1].toInt(), given[first + 2].toInt(), given[first + 3].toInt()};
}

/// (input, weight, bias, N, C, HxW, group, eps) -> out, mean, rstd; the last two in the type of sums
bool group_norm(Given given, Results& results) {
  const Tensor input = given[0].toTensor();
  const Tensor weight = packed(optional_tensor(given[1])), bias = packed(optional_tensor(given[2]));
  const Groups shape = groups_of(given, 3);
  if (!is_real(input) || !fits(weight, input) || !fits(bias, input) || input.numel() == 0 || !shape.fit(input)) return false;
  const Tensor in = input.contiguous(), out = at::empty(in.sizes(), in.options()),
               middle = at::empty({shape.images, shape.groups}, in.options().dtype(sum_type(in))), scale = at::empty_like(middle);
  run_rows(in, "layer_norm",
           {write(out), write(middle), write(scale), read(in), read(weight.defined() ? weight : in), read(bias.defined() ? bias : in),
            flag(weight.defined()), flag(bias.defined()), count(shape.of_row()), number(in, given[7].toDouble()), count(shape.groups),
            count(shape.places)},
           shape.rows(), shape.of_row(), kGrouped);
  results = {out, middle, scale};
  return true;
}

/// (grad, input, mean, rstd, weight, N, C, HxW, group, mask) -> input's, weight's, bias's
bool group_norm_backward(Given given, Results& results) {
  const Tensor input = given[1].toTensor(), weight = packed(optional_tensor(given[4]));
  const Groups shape = groups_of(given, 5);
  const c10::List<bool> mask = given[9].toBoolList();
  for (const int i : {0, 1, 2, 3}) {
    const Tensor one = given[i].toTensor();
    if (!is_real(one) || one.scalar_type() != (i < 2 ? input.scalar_type() : sum_type(input))) return false;
  }
  if (!fits(weight, input) || input.numel() == 0 || !shape.fit(input)) return false;
  const Tensor in = input.contiguous(), grad = given[0].toTensor().contiguous(), middle = given[2].toTensor().contiguous(),
               scale = given[3].toTensor().contiguous();
  Tensor for_input, for_weight, for_bias;
  if (mask[0]) {
    for_input = at::empty(in.sizes(), in.options());
    run_rows(in, "layer_norm_backward",
             {write(for_input), read(grad), read(in), read(middle), read(scale), read(weight.defined() ? weight : in),
              flag(weight.defined()), count(shape.of_row()), count(shape.groups), count(shape.places)},
             shape.rows(), shape.of_row(), kGrouped);
  }
  if (mask[1]) for_weight = at::empty({shape.channels}, in.options());
  if (mask[2]) for_bias = at::empty({shape.channels}, in.options());
  if (mask[1] || mask[2]) {
    const Tensor& any = mask[1] ? for_weight : for_bias;
    run_rows(in, "group_norm_parameters",
             {write(mask[1] ? for_weight : any), write(mask[2] ? for_bias : any), read(grad), read(in), read(middle), read(scale),
              flag(mask[1]), flag(mask[2]), count(shape.images), count(shape.channels), count(shape.groups), count(shape.places)},
             shape.channels, shape.of_row(), kGrouped);
  }
  results = {for_input, for_weight, for_bias};
  return true;
}

}  // namespace

void register_rows() {
  static auto* aten = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::XPU, __FILE__, __LINE__);
  aten->impl("_softmax.out", as_kernel<&softmax_forward>());
  aten->impl("_safe_softmax", as_kernel<&safe_softmax>());
  aten->impl("_log_softmax.out", as_kernel<&log_softmax_forward>());
  aten->impl("_softmax_backward_data.out", as_kernel<&softmax_backward>());
  aten->impl("_log_softmax_backward_data.out", as_kernel<&log_softmax_backward>());
  aten->impl("native_layer_norm", as_kernel<&layer_norm>());
  aten->impl("native_layer_norm_backward", as_kernel<&layer_norm_backward>());
  aten->impl("native_group_norm", as_kernel<&group_norm>());
  aten->impl("native_group_norm_backward", as_kernel<&group_norm_backward>());
}

}  // namespace ipexrun::preload::xpu
