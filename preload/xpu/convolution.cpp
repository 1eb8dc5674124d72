// Convolutions and their gradients, transposed ones too: the forward pass of one is the gradient of the other's image. One group: a
// product of matrices that reads its columns from the image, where kernels are a GPU's; else columns and products, in pieces of the batch
// that bound the columns' memory. Several groups: directly.
#include <ATen/ops/add.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include "preload/xpu/convolution.h"
#include "preload/xpu/products.h"
#include "preload/xpu/reduced.h"

namespace ipexrun::preload::xpu {
namespace {

using at::Tensor;

constexpr double kColumnBytes = 128.0 * 1024 * 1024;
constexpr std::size_t kConvLanes = 64;  // LANES of conv.cl

struct Conv {  // xpu/kernels/conv.cl
  std::int32_t channels, outputs, groups;
  std::int32_t in[3], out[3], kernel[3], stride[3], padding[3], dilation[3];
};
std::int64_t volume(const std::int32_t* sizes) { return std::int64_t{sizes[0]} * sizes[1] * sizes[2]; }

bool fill_three(std::int32_t* to, at::IntArrayRef from, std::int32_t missing) {
  std::fill(to, to + 3, missing);
  const std::size_t first = 3 - from.size();
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (from[i] > std::numeric_limits<std::int32_t>::max() / 2) return false;
    to[first + i] = static_cast<std::int32_t>(from[i]);
  }
  return true;
}

/// Of the convolution that makes outputs of that size from an image of that size.
bool describe(Conv& out, at::IntArrayRef image, at::IntArrayRef output, at::IntArrayRef kernel, const ConvolutionParameters& p) {
  const std::size_t dims = kernel.size() - 2;
  if (dims < 1 || dims > 3 || image.size() != kernel.size()) return false;
  const auto given = [&](at::IntArrayRef values) { return values.size() == 1 ? std::vector<std::int64_t>(dims, values[0]) : values.vec(); };
  out.channels = static_cast<std::int32_t>(image[1]);
  out.outputs = static_cast<std::int32_t>(output[1]);
  out.groups = static_cast<std::int32_t>(p.groups);
  const bool small = fill_three(out.in, image.slice(2), 1) && fill_three(out.out, output.slice(2), 1) &&
                     fill_three(out.kernel, kernel.slice(2), 1) && fill_three(out.stride, given(p.stride), 1) &&
                     fill_three(out.padding, given(p.padding), 0) && fill_three(out.dilation, given(p.dilation), 1);
  // Kernels count within one image in 32 bits.
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max() / 2;
  return small && volume(out.in) < kMost && volume(out.out) < kMost && volume(out.kernel) * image[1] < kMost;
}

bool is_one_by_one(const Conv& c) {
  for (int d = 0; d < 3; ++d)
    if (c.kernel[d] != 1 || c.stride[d] != 1 || c.padding[d] != 0) return false;
  return true;
}

/// Images at a time.
std::int64_t piece(const Conv& c, const Tensor& image) {
  const double each = static_cast<double>(volume(c.kernel) * c.channels * volume(c.out)) * static_cast<double>(image.element_size());
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(kColumnBytes / std::max(each, 1.0)), 1, image.size(0));
}

Kernel& real_kernel(const Tensor& on, const char* name) { return unit_of(on).device->kernel("conv", real_options(on), name); }
void launch(const Tensor& on, Kernel& kernel, const std::vector<Argument>& arguments, std::int64_t x, std::int64_t y, std::int64_t z) {
  const std::array<std::size_t, 3> local = x >= 32 ? std::array<std::size_t, 3>{64, 1, 1} : std::array<std::size_t, 3>{8, 8, 1};
  unit_of(on).device->launch(kernel, arguments, {static_cast<std::size_t>(x), static_cast<std::size_t>(y), static_cast<std::size_t>(z)},
                             local, stream_of(on));
}
void launch_groups(const Tensor& on, Kernel& kernel, const std::vector<Argument>& arguments, std::int64_t groups) {
  unit_of(on).device->launch(kernel, arguments, {static_cast<std::size_t>(groups) * kConvLanes, 1, 1}, {kConvLanes, 1, 1}, stream_of(on));
}

/// [images, channels and window, outputs]
Tensor columns_of(const Tensor& image, const Conv& c) {
  if (is_one_by_one(c)) return image.view({image.size(0), c.channels, volume(c.out)});
  const std::int64_t rows = c.channels * volume(c.kernel);
  Tensor out = at::empty({image.size(0), rows, volume(c.out)}, image.options());
  const bool lines = !unit_of(image).device->facts().lanes;
  Kernel& kernel =
      unit_of(image).device->kernel("conv", std::string("-DRAW=") + raw_type(image.element_size()), lines ? "im2col_lines" : "im2col");
  launch(image, kernel, {write(out), read(image), Argument::value(c)}, lines ? volume(c.out) / c.out[2] : volume(c.out), rows,
         image.size(0));
  return out;
}

constexpr int kLargestWindow = 7;  ///< a program for each size: larger ones are rare

/// One product that reads the image itself, of two dimensions: `matrix` [outputs, channels and window], image [n, channels, in], out [n,
/// outputs, out]. False: nothing was done.
bool without_columns(const Tensor& out, const Tensor& image, const Tensor& matrix, const Tensor& bias, const Conv& c, std::int32_t channels,
                     std::int32_t outputs, bool gradient) {
  if (c.kernel[0] != 1 || c.in[0] != 1 || c.kernel[1] > kLargestWindow || c.kernel[2] > kLargestWindow || is_one_by_one(c)) return false;
  ConvolutionWindow window{};
  for (int d = 0; d < 2; ++d) {
    // The gradient of an image is what goes backwards through the window over the gradient of the outputs.
    window.in[d] = gradient ? c.out[d + 1] : c.in[d + 1];
    window.out[d] = gradient ? c.in[d + 1] : c.out[d + 1];
    window.stride[d] = gradient ? 1 : c.stride[d + 1];
    window.padding[d] = gradient ? -c.padding[d + 1] : c.padding[d + 1];
    window.dilation[d] = gradient ? -c.dilation[d + 1] : c.dilation[d + 1];
  }
  const std::int64_t places = std::int64_t{window.out[0]} * window.out[1];
  window.image = std::int64_t{channels} * window.in[0] * window.in[1];
  ProductShape shape{outputs, image.size(0) * places, channels * volume(c.kernel), {}, {}, {}, {}};
  shape.a[0] = shape.k;
  shape.a[1] = 1;
  shape.b[0] = 0;
  shape.b[1] = 1;
  shape.c[0] = 1;
  shape.out[0] = places;
  shape.out[1] = 1;
  shape.out[2] = outputs * places;
  return multiply_windows(out, matrix, image, bias, shape, window, c.kernel[1], c.kernel[2]);
}

/// All contiguous; `out` has its size. `weight`: [outputs, channels / groups, window].
void forward(const Tensor& out, const Tensor& image, const Tensor& weight, const Tensor& bias, const Conv& c) {
  if (c.groups != 1) {
    launch(out, real_kernel(out, "direct"),
           {write(out), read(image), read(weight), read(bias.defined() ? bias : weight), flag(bias.defined()), Argument::value(c)},
           volume(c.out), c.outputs, image.size(0));
    return;
  }
  if (without_columns(out, image, weight, bias, c, c.channels, c.outputs, false)) return;
  const Tensor matrix = weight.view({1, c.outputs, -1});
  const std::int64_t step = piece(c, image);
  for (std::int64_t first = 0; first < image.size(0); first += step) {
    const std::int64_t n = std::min(step, image.size(0) - first);
    const Tensor columns = columns_of(image.narrow(0, first, n), c);
    Tensor to = out.narrow(0, first, n).view({n, c.outputs, volume(c.out)});
    const Tensor all = matrix.expand({n, -1, -1});
    if (bias.defined()) {
      at::baddbmm_out(to, bias.view({1, c.outputs, 1}).expand(to.sizes()), all, columns);
    } else {
      at::bmm_out(to, all, columns);
    }
  }
}

void image_gradient(const Tensor& image, const Tensor& grad, const Tensor& weight, const Conv& c) {
  if (c.groups != 1) {
    launch(image, real_kernel(image, "direct_image"), {write(image), read(grad), read(weight), Argument::value(c)}, volume(c.in),
           c.channels, image.size(0));
    return;
  }
  if (c.stride[0] == 1 && c.stride[1] == 1 && c.stride[2] == 1 &&
      without_columns(image, grad, weight.view({c.outputs, c.channels, -1}).transpose(0, 1).contiguous(), Tensor(), c, c.outputs,
                      c.channels, true))
    return;
  const Tensor matrix = weight.view({1, c.outputs, -1}).transpose(1, 2);
  // Columns of 16 bits would be rounded before they are added up; what is added are float's.
  const auto type = wide(image) ? at::kDouble : at::kFloat;
  const Tensor exact = is_one_by_one(c) ? matrix : matrix.to(type);
  const std::int64_t step = piece(c, image);
  for (std::int64_t first = 0; first < image.size(0); first += step) {
    const std::int64_t n = std::min(step, image.size(0) - first);
    const Tensor from = grad.narrow(0, first, n).view({n, c.outputs, volume(c.out)});
    const Tensor to = image.narrow(0, first, n);
    if (is_one_by_one(c)) {
      Tensor direct = to.view({n, c.channels, volume(c.in)});
      at::bmm_out(direct, matrix.expand({n, -1, -1}), from);
      continue;
    }
    const Tensor columns = at::bmm(exact.expand({n, -1, -1}), from.to(type));
    const Tensor sums = to.scalar_type() == type ? to : at::empty(to.sizes(), to.options().dtype(type));
    launch(sums, real_kernel(sums, "col2im"), {write(sums), read(columns), Argument::value(c)}, volume(c.in), c.channels, n);
    if (!sums.is_same(to)) to.copy_(sums);
  }
}

void weight_gradient(const Tensor& weight, const Tensor& grad, const Tensor& image, const Conv& c) {
  if (c.groups != 1) {
    launch_groups(weight, real_kernel(weight, "direct_weight"),
                  {write(weight), read(grad), read(image), Argument::value(c), count(image.size(0))}, weight.numel());
    return;
  }
  // A product an image, then their sum: the sum over all positions of all images is too long for one work item.
  Tensor sum;
  const auto type = wide(weight) ? at::kDouble : at::kFloat;
  const double each = static_cast<double>(weight.nbytes());
  const std::int64_t step = std::clamp<std::int64_t>(static_cast<std::int64_t>(kColumnBytes / each), 1, piece(c, image));
  for (std::int64_t first = 0; first < image.size(0); first += step) {
    const std::int64_t n = std::min(step, image.size(0) - first);
    const Tensor columns = columns_of(image.narrow(0, first, n), c);
    const Tensor from = grad.narrow(0, first, n).view({n, c.outputs, volume(c.out)});
    const Tensor part = at::bmm(from, columns.transpose(1, 2)).to(type).sum(0);
    sum = sum.defined() ? sum.add_(part) : part;
  }
  weight.view({c.outputs, -1}).copy_(sum);
}

bool fit(std::initializer_list<Tensor> tensors) {
  const Tensor& first = *tensors.begin();
  for (const Tensor& tensor : tensors)
    if (tensor.defined() && (!is_real(tensor) || tensor.scalar_type() != first.scalar_type() || tensor.numel() == 0)) return false;
  return true;
}

Tensor as_stock_lays_it(const Tensor& out, const Tensor& like) {
  return out.dim() == 4 && like.suggest_memory_format() == at::MemoryFormat::ChannelsLast ? out.contiguous(at::MemoryFormat::ChannelsLast)
                                                                                          : out;
}

std::vector<std::int64_t> output_sizes(const Tensor& input, const Tensor& weight, const ConvolutionParameters& p) {
  const auto at = [](at::IntArrayRef values, std::size_t d) { return values.size() == 1 ? values[0] : values[d]; };
  std::vector<std::int64_t> out{input.size(0), p.transposed ? weight.size(1) * p.groups : weight.size(0)};
  for (std::int64_t d = 2; d < input.dim(); ++d) {
    const auto i = static_cast<std::size_t>(d - 2);
    const std::int64_t reach = at(p.dilation, i) * (weight.size(d) - 1) + 1, size = input.size(d);
    out.push_back(p.transposed ? (size - 1) * at(p.stride, i) - 2 * at(p.padding, i) + reach + at(p.output_padding, i)
                               : (size + 2 * at(p.padding, i) - reach) / at(p.stride, i) + 1);
  }
  return out;
}

bool convolve_as_given(const Tensor& given_input, const Tensor& given_weight, const Tensor& given_bias, const ConvolutionParameters& p,
                       Tensor& out) {
  if (!fit({given_input, given_weight, given_bias})) return false;
  const Tensor input = given_input.contiguous(), weight = given_weight.contiguous(), bias = packed(given_bias);
  const std::vector<std::int64_t> sizes = output_sizes(input, weight, p);
  if (std::any_of(sizes.begin(), sizes.end(), [](std::int64_t size) { return size <= 0; })) return false;
  Conv c{};
  if (!(p.transposed ? describe(c, sizes, input.sizes(), weight.sizes(), p) : describe(c, input.sizes(), sizes, weight.sizes(), p)))
    return false;
  out = at::empty(sizes, input.options());
  if (p.transposed) {
    image_gradient(out, input, weight, c);
    if (bias.defined()) {
      std::vector<std::int64_t> broadcast(sizes.size(), 1);
      broadcast[1] = sizes[1];
      out.add_(bias.view(broadcast));
    }
  } else {
    forward(out, input, weight, bias, c);
  }
  out = as_stock_lays_it(out, given_input);
  return true;
}

bool convolve_backward_as_given(const Tensor& given_grad, const Tensor& given_input, const Tensor& given_weight,
                                const ConvolutionParameters& p, std::array<bool, 3> mask, std::array<Tensor, 3>& out) {
  if (!fit({given_grad, given_input, given_weight})) return false;
  const Tensor grad = given_grad.contiguous(), input = given_input.contiguous(), weight = given_weight.contiguous();
  Conv c{};
  if (!(p.transposed ? describe(c, grad.sizes(), input.sizes(), weight.sizes(), p)
                     : describe(c, input.sizes(), grad.sizes(), weight.sizes(), p)))
    return false;
  if (mask[0]) {
    out[0] = at::empty(input.sizes(), input.options());
    if (p.transposed) {
      forward(out[0], grad, weight, Tensor(), c);
    } else {
      image_gradient(out[0], grad, weight, c);
    }
    out[0] = as_stock_lays_it(out[0], given_input);
  }
  if (mask[1]) {
    out[1] = at::empty(weight.sizes(), weight.options());
    if (p.transposed) {
      weight_gradient(out[1], input, grad, c);
    } else {
      weight_gradient(out[1], grad, input, c);
    }
  }
  if (mask[2]) {
    out[2] = at::empty({grad.size(1)}, grad.options());
    std::int64_t positions = 1;
    for (std::int64_t d = 2; d < grad.dim(); ++d) positions *= grad.size(d);
    launch_groups(grad, real_kernel(grad, "bias_gradient"),
                  {write(out[2]), read(grad), Argument::value(static_cast<std::int32_t>(grad.size(1))),
                   Argument::value(static_cast<std::int32_t>(positions)), count(grad.size(0))},
                  grad.size(1));
  }
  return true;
}

/// What convolutions of one kind have in common: sizes and all that says how the window lies.
std::vector<std::int64_t> kind_of(std::int64_t which, const Tensor& input, const Tensor& weight, const ConvolutionParameters& p) {
  std::vector<std::int64_t> out{-which, p.transposed, p.groups, bucket(input.size(0))};
  for (const at::IntArrayRef values : {input.sizes().slice(1), weight.sizes(), p.stride, p.padding, p.dilation, p.output_padding})
    out.insert(out.end(), values.begin(), values.end());
  return out;
}
Tensor as(const Tensor& tensor, at::ScalarType type) { return tensor.defined() ? tensor.to(type) : tensor; }
void need(bool done) { TORCH_CHECK(done, "a convolution that kernels do not take"); }

}  // namespace

bool convolve(const Tensor& input, const Tensor& weight, const Tensor& bias, const ConvolutionParameters& p, Tensor& out) {
  if (!fit({input, weight, bias}) || input.scalar_type() != at::kFloat || !may_reduce(input))
    return convolve_as_given(input, weight, bias, p, out);
  const auto with = [&](at::ScalarType inside) {
    Tensor made;
    need(convolve_as_given(as(input, inside), as(weight, inside), as(bias, inside), p, made));
    return made.to(at::kFloat);
  };
  const ReducedCall call{
      "convolutions", kind_of(1, input, weight, p), [&](at::ScalarType inside) { return std::vector<Tensor>{with(inside)}; }, {1}};
  std::vector<Tensor> results;
  const at::ScalarType inside = choose_inside(call, {input, weight, bias}, results);
  const KeepInside keep;
  if (results.empty() && inside == at::kFloat) return convolve_as_given(input, weight, bias, p, out);
  out = results.empty() ? with(inside) : results[0];
  return true;
}

bool convolve_backward(const Tensor& grad, const Tensor& input, const Tensor& weight, const ConvolutionParameters& p,
                       std::array<bool, 3> mask, std::array<Tensor, 3>& out) {
  if (!fit({grad, input, weight}) || grad.scalar_type() != at::kFloat || !may_reduce(grad))
    return convolve_backward_as_given(grad, input, weight, p, mask, out);
  const auto with = [&](at::ScalarType inside) {
    std::array<Tensor, 3> made;
    need(convolve_backward_as_given(as(grad, inside), as(input, inside), as(weight, inside), p, mask, made));
    std::vector<Tensor> list;
    for (const Tensor& one : made) list.push_back(as(one, at::kFloat));
    return list;
  };
  std::vector<std::int64_t> kind = kind_of(2, input, weight, p);
  kind.insert(kind.end(), mask.begin(), mask.end());
  std::vector<Tensor> results;
  const at::ScalarType inside = choose_inside({"gradients of convolutions", kind, with, {1, 0, 0}}, {grad, input, weight}, results);
  const KeepInside keep;
  if (results.empty() && inside == at::kFloat) return convolve_backward_as_given(grad, input, weight, p, mask, out);
  if (results.empty()) results = with(inside);
  std::copy(results.begin(), results.end(), out.begin());
  return true;
}

}  // namespace ipexrun::preload::xpu
