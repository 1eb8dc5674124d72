// Batch norm, training and evaluation, and its gradients.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "preload/xpu/operands.h"
#include "preload/xpu/operators.h"

namespace ipexrun::preload::xpu {
namespace {

using at::Tensor;

constexpr std::int64_t kNormLanes = 256;   // LANES of batch_norm.cl
constexpr std::int64_t kPieces = 64;       ///< work groups a channel, at most
constexpr std::int64_t kPlanePart = 4096;  // PLANE_PART of batch_norm.cl
constexpr std::int64_t kLeastPlane = 64;   ///< elements of a plane that is worth an item of its own (assumed)

struct NormShape {  // batch_norm.cl
  std::int64_t channels, inner, each, all;
};

/// The type of weights and statistics: that of the first of them, else the image's.
at::ScalarType parameter_type(const Tensor& input, std::initializer_list<Tensor> parameters) {
  for (const Tensor& one : parameters)
    if (one.defined()) return one.scalar_type();
  return input.scalar_type();
}
bool fit_norm(const Tensor& input, at::ScalarType type, std::initializer_list<Tensor> parameters) {
  if (!is_real(input) || input.dim() < 2 || input.numel() == 0 || input.numel() == input.size(1)) return false;
  if (wide(input) != (type == at::kDouble)) return false;
  for (const Tensor& one : parameters)
    if (one.defined() && (!is_real(one) || one.scalar_type() != type || one.numel() != input.size(1) || !one.is_contiguous())) return false;
  return true;
}

struct Plan {
  NormShape shape;
  std::int64_t pieces;
  std::string options;
  std::int64_t each;  ///< elements of a work item of linear kernels
};
Plan plan(const Tensor& in, at::ScalarType type) {
  Plan out{};
  out.shape.channels = in.size(1);
  out.shape.all = in.numel() / in.size(1);
  out.shape.inner = out.shape.all / in.size(0);
  // Enough work groups to fill a device, each with enough to do.
  out.pieces = std::clamp<std::int64_t>(std::min(out.shape.all / (4 * kNormLanes), 2048 / out.shape.channels), 1, kPieces);
  out.shape.each = (out.shape.all + out.pieces - 1) / out.pieces;
  out.pieces = (out.shape.all + out.shape.each - 1) / out.shape.each;
  out.options = real_options(in) + " -DP=" + kernel_type(type) + index_option(in.numel() + kNormLanes) + each_option(in, in.element_size());
  out.each = each_item(in, in.element_size());
  return out;
}
void launch_pieces(const Tensor& on, Kernel& kernel, const std::vector<Argument>& arguments, const Plan& plan) {
  unit_of(on).device->launch(kernel, arguments,
                             {static_cast<std::size_t>(plan.shape.channels * kNormLanes), static_cast<std::size_t>(plan.pieces), 1},
                             {static_cast<std::size_t>(kNormLanes), 1, 1}, stream_of(on));
}
Tensor partial(const Tensor& in, const Plan& plan) {
  return at::empty({plan.shape.channels, plan.pieces}, in.options().dtype(wide(in) ? at::kDouble : at::kFloat));
}
const Tensor& either(const Tensor& first, const Tensor& second) { return first.defined() ? first : second; }

/// (input, weight, bias, running_mean, running_var, training, momentum, eps) -> out, mean, rstd
bool batch_norm(Given given, Results& results) {
  const Tensor input = given[0].toTensor(), weight = packed(optional_tensor(given[1])), bias = packed(optional_tensor(given[2])),
               running_mean = optional_tensor(given[3]), running_var = optional_tensor(given[4]);
  const bool training = given[5].toBool();
  const at::ScalarType type = parameter_type(input, {weight, bias, running_mean, running_var});
  if (!fit_norm(input, type, {weight, bias, running_mean, running_var})) return false;
  if (!training && (!running_mean.defined() || !running_var.defined())) return false;
  const Tensor in = input.contiguous(), out = at::empty(in.sizes(), in.options());
  const Plan p = plan(in, type);
  ::ipexrun::xpu::Device& device = *unit_of(in).device;
  Tensor mean = at::empty({training ? p.shape.channels : 0}, in.options().dtype(type)), rstd = at::empty_like(mean);
  if (training) {
    const Tensor means = partial(in, p), squares = partial(in, p);
    launch_pieces(in, device.kernel("batch_norm", p.options, "moments"), {write(means), write(squares), read(in), Argument::value(p.shape)},
                  p);
    const std::int32_t running = (running_mean.defined() ? 1 : 0) | (running_var.defined() ? 2 : 0);
    launch_linear(in, device.kernel("batch_norm", p.options, "join_moments"),
                  {write(mean), write(rstd), write(either(running_mean, mean)), write(either(running_var, rstd)), read(means),
                   read(squares), Argument::value(running), Argument::value(p.shape), count(p.pieces), number(in, given[6].toDouble()),
                   number(in, given[7].toDouble())},
                  p.shape.channels);
  }
  const std::vector<Argument> arguments{write(out),
                                        read(in),
                                        read(training ? mean : running_mean),
                                        read(training ? rstd : running_var),
                                        read(either(weight, in)),
                                        read(either(bias, in)),
                                        flag(weight.defined()),
                                        flag(bias.defined()),
                                        flag(!training),
                                        Argument::value(p.shape),
                                        number(in, given[7].toDouble()),
                                        count(in.numel())};
  if (!device.facts().lanes && p.shape.inner >= kLeastPlane) {
    const auto parts = static_cast<std::size_t>((p.shape.inner + kPlanePart - 1) / kPlanePart);
    device.launch(device.kernel("batch_norm", p.options, "apply_planes"), arguments,
                  {parts, static_cast<std::size_t>(in.numel() / p.shape.inner), 1}, {1, 1, 1}, stream_of(in));
  } else {
    launch_linear(in, device.kernel("batch_norm", p.options, "apply"), arguments, in.numel(), p.each);
  }
  results = {input.is_contiguous() ? out : out.contiguous(input.suggest_memory_format()), mean, rstd};
  return true;
}

/// (grad, input, weight, running_mean, running_var, save_mean, save_rstd, train, eps, mask) -> gradients of input, weight, bias
bool batch_norm_backward(Given given, Results& results) {
  const Tensor given_grad = given[0].toTensor(), input = given[1].toTensor(), weight = packed(optional_tensor(given[2]));
  const bool training = given[7].toBool();
  const Tensor mean = optional_tensor(given[training ? 5 : 3]), rstd = optional_tensor(given[training ? 6 : 4]);
  if (!mean.defined() || !rstd.defined()) return false;
  const at::ScalarType type = mean.scalar_type();
  if (!fit_norm(input, type, {weight, mean, rstd}) || !is_real(given_grad) || given_grad.scalar_type() != input.scalar_type()) return false;
  const c10::List<bool> mask = given[9].toBoolList();
  const Tensor in = input.contiguous(), grad = given_grad.contiguous();
  const Plan p = plan(in, type);
  const Argument eps = number(in, given[8].toDouble());
  ::ipexrun::xpu::Device& device = *unit_of(in).device;
  const Tensor sums = partial(in, p), products = partial(in, p);
  Tensor for_input, for_weight, for_bias;
  if (mask[1]) for_weight = at::empty({p.shape.channels}, mean.options());
  if (mask[2]) for_bias = at::empty({p.shape.channels}, mean.options());
  if (training || mask[1] || mask[2]) {
    launch_pieces(in, device.kernel("batch_norm", p.options, "gradient_sums"),
                  {write(sums), write(products), read(grad), read(in), read(mean), Argument::value(p.shape)}, p);
    launch_linear(in, device.kernel("batch_norm", p.options, "join_gradients"),
                  {write(either(for_weight, sums)), write(either(for_bias, sums)), write(sums), write(products), read(rstd), flag(mask[1]),
                   flag(mask[2]), flag(!training), Argument::value(p.shape), count(p.pieces), eps},
                  p.shape.channels);
  }
  if (mask[0]) {
    for_input = at::empty(in.sizes(), in.options());
    launch_linear(in, device.kernel("batch_norm", p.options, "gradient"),
                  {write(for_input), read(grad), read(in), read(mean), read(rstd), read(either(weight, in)), read(sums), read(products),
                   flag(weight.defined()), flag(training), Argument::value(p.shape), count(p.pieces), eps, count(in.numel())},
                  in.numel(), p.each);
    if (!input.is_contiguous()) for_input = for_input.contiguous(input.suggest_memory_format());
  }
  results = {for_input, for_weight, for_bias};
  return true;
}

}  // namespace

void register_batch_norm() {
  static auto* aten = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::XPU, __FILE__, __LINE__);
  aten->impl("native_batch_norm", as_kernel<&batch_norm>());
  aten->impl("native_batch_norm_backward", as_kernel<&batch_norm_backward>());
}

}  // namespace ipexrun::preload::xpu
