// Pools of two dimensions: maxima with their places, averages, adaptive averages, and their gradients. torch makes those of one dimension
// of them.
#include <ATen/native/Pool.h>
#include <ATen/ops/empty.h>

#include "preload/xpu/operands.h"
#include "preload/xpu/operators.h"

namespace ipexrun::preload::xpu {
namespace {

using at::Tensor;

struct Pool {  // pool.cl
  std::int32_t in[2], out[2], kernel[2], stride[2], padding[2], dilation[2];
  std::int32_t count_padding, divisor;
};

void fill_two(std::int32_t* to, const std::vector<std::int64_t>& from) {
  to[0] = static_cast<std::int32_t>(from[0]);
  to[1] = static_cast<std::int32_t>(from.size() == 1 ? from[0] : from[1]);
}
bool fits(const Tensor& image) {
  if (!is_real(image) || (image.dim() != 3 && image.dim() != 4)) return false;
  return image.numel() > 0 && image.size(-1) * image.size(-2) < std::numeric_limits<std::int32_t>::max();
}
/// (kernel, stride, padding) of three arguments, and the sizes of the result.
Pool describe(const Tensor& image, Given windows, const std::vector<std::int64_t>& dilation, bool ceil) {
  Pool out{};
  fill_two(out.kernel, windows[0].toIntVector());
  const std::vector<std::int64_t> stride = windows[1].toIntVector();
  fill_two(out.stride, stride.empty() ? windows[0].toIntVector() : stride);
  fill_two(out.padding, windows[2].toIntVector());
  fill_two(out.dilation, dilation);
  for (int d = 0; d < 2; ++d) {
    out.in[d] = static_cast<std::int32_t>(image.size(d - 2));
    out.out[d] =
        at::native::pooling_output_shape<std::int32_t>(out.in[d], out.kernel[d], out.padding[d], out.stride[d], out.dilation[d], ceil);
  }
  return out;
}
std::vector<std::int64_t> result_sizes(const Tensor& image, const Pool& pool) {
  std::vector<std::int64_t> out = image.sizes().vec();
  out[out.size() - 2] = pool.out[0];
  out[out.size() - 1] = pool.out[1];
  return out;
}
void run(const char* name, const Tensor& to, std::vector<Argument> arguments, const Pool& pool) {
  arguments.push_back(Argument::value(pool));
  arguments.push_back(count(to.numel()));
  launch_linear(to, unit_of(to).device->kernel("pool", real_options(to) + index_option(to.numel()), name), arguments, to.numel());
}

/// Calls `make` with a contiguous tensor that becomes `out`.
template <typename Make>
void into(const Tensor& out, const std::vector<std::int64_t>& sizes, Make&& make) {
  if (out.sizes() != at::IntArrayRef(sizes)) out.resize_(sizes);
  if (out.is_contiguous()) return make(out);
  const Tensor packed = at::empty(sizes, out.options());
  make(packed);
  out.copy_(packed);
}
bool takes(const Tensor& out, at::ScalarType type) { return plain(out) && out.scalar_type() == type; }

/// (self, kernel, stride, padding, dilation, ceil, out, indices)
bool max_pool(Given given, Results& results) {
  const Tensor self = given[0].toTensor(), out = given[6].toTensor(), indices = given[7].toTensor();
  if (!fits(self) || !takes(out, self.scalar_type()) || !takes(indices, at::kLong)) return false;
  const Pool pool = describe(self, given + 1, given[4].toIntVector(), given[5].toBool());
  const Tensor in = self.contiguous();
  into(out, result_sizes(self, pool), [&](const Tensor& values) {
    into(indices, values.sizes().vec(), [&](const Tensor& places) {
      run("max_pool", values, {write(values), write(places), read(in)}, pool);
    });
  });
  results = {out, indices};
  return true;
}
/// (grad, self, kernel, stride, padding, dilation, ceil, indices, grad_input)
bool max_pool_backward(Given given, Results& results) {
  const Tensor grad = given[0].toTensor(), self = given[1].toTensor(), indices = given[7].toTensor(), out = given[8].toTensor();
  if (!fits(self) || !is_real(grad) || grad.scalar_type() != self.scalar_type() || !takes(out, self.scalar_type()) ||
      !takes(indices, at::kLong))
    return false;
  const Pool pool = describe(self, given + 2, given[5].toIntVector(), given[6].toBool());
  const Tensor from = grad.contiguous(), places = indices.contiguous();
  into(out, self.sizes().vec(), [&](const Tensor& to) { run("max_pool_backward", to, {write(to), read(from), read(places)}, pool); });
  results = {out};
  return true;
}

Pool describe_average(const Tensor& self, Given windows) {
  Pool pool = describe(self, windows, {1, 1}, windows[3].toBool());
  pool.count_padding = windows[4].toBool() ? 1 : 0;
  pool.divisor = windows[5].isNone() ? 0 : static_cast<std::int32_t>(windows[5].toInt());
  return pool;
}
/// (self, kernel, stride, padding, ceil, count_include_pad, divisor, out)
bool average_pool(Given given, Results& results) {
  const Tensor self = given[0].toTensor(), out = given[7].toTensor();
  if (!fits(self) || !takes(out, self.scalar_type())) return false;
  const Pool pool = describe_average(self, given + 1);
  const Tensor in = self.contiguous();
  into(out, result_sizes(self, pool), [&](const Tensor& to) { run("average_pool", to, {write(to), read(in)}, pool); });
  results = {out};
  return true;
}
/// (grad, self, kernel, stride, padding, ceil, count_include_pad, divisor, grad_input)
bool average_pool_backward(Given given, Results& results) {
  const Tensor grad = given[0].toTensor(), self = given[1].toTensor(), out = given[8].toTensor();
  if (!fits(self) || !is_real(grad) || grad.scalar_type() != self.scalar_type() || !takes(out, self.scalar_type())) return false;
  const Pool pool = describe_average(self, given + 2);
  const Tensor from = grad.contiguous();
  into(out, self.sizes().vec(), [&](const Tensor& to) { run("average_pool_backward", to, {write(to), read(from)}, pool); });
  results = {out};
  return true;
}

Pool describe_adaptive(const Tensor& image, std::int64_t height, std::int64_t width) {
  Pool pool{};
  for (int d = 0; d < 2; ++d) pool.in[d] = static_cast<std::int32_t>(image.size(d - 2));
  pool.out[0] = static_cast<std::int32_t>(height);
  pool.out[1] = static_cast<std::int32_t>(width);
  return pool;
}
/// (self, output_size)
bool adaptive_average(Given given, Results& results) {
  const Tensor self = given[0].toTensor();
  const std::vector<std::int64_t> size = given[1].toIntVector();
  if (!fits(self) || size.size() != 2 || size[0] <= 0 || size[1] <= 0) return false;
  const Pool pool = describe_adaptive(self, size[0], size[1]);
  const Tensor in = self.contiguous(), out = at::empty(result_sizes(self, pool), self.options());
  run("adaptive_average", out, {write(out), read(in)}, pool);
  results = {self.dim() == 4 ? out.contiguous(self.suggest_memory_format()) : out};
  return true;
}
/// (grad, self)
bool adaptive_average_backward(Given given, Results& results) {
  const Tensor grad = given[0].toTensor(), self = given[1].toTensor();
  if (!fits(self) || !is_real(grad) || grad.scalar_type() != self.scalar_type() || grad.numel() == 0) return false;
  const Pool pool = describe_adaptive(self, grad.size(-2), grad.size(-1));
  const Tensor from = grad.contiguous(), out = at::empty(self.sizes(), self.options());
  run("adaptive_average_backward", out, {write(out), read(from)}, pool);
  results = {self.dim() == 4 ? out.contiguous(self.suggest_memory_format()) : out};
  return true;
}

}  // namespace

void register_pools() {
  static auto* aten = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::XPU, __FILE__, __LINE__);
  aten->impl("max_pool2d_with_indices.out", as_kernel<&max_pool>());
  aten->impl("max_pool2d_with_indices_backward.grad_input", as_kernel<&max_pool_backward>());
  aten->impl("avg_pool2d.out", as_kernel<&average_pool>());
  aten->impl("avg_pool2d_backward.grad_input", as_kernel<&average_pool_backward>());
  aten->impl("_adaptive_avg_pool2d", as_kernel<&adaptive_average>());
  aten->impl("_adaptive_avg_pool2d_backward", as_kernel<&adaptive_average_backward>());
}

}  // namespace ipexrun::preload::xpu
