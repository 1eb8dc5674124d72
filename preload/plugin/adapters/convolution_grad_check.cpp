// The accuracy rule for the gradients of a convolution: places spread over each against fp64, the whole of each against stock's.
#include <cmath>
#include <type_traits>
#include <utility>

#include "preload/plugin/adapters/convolution_grad_call.h"
#include "preload/plugin/adapters/sampling.h"

namespace ipexrun::preload {
namespace {

template <typename T>
constexpr Precision kPrecision = std::is_same_v<T, at::Half> ? Precision::kFloat16Op : Precision::kBf16Op;

std::int64_t stride_of(const at::Tensor& tensor, std::size_t dim) {
  const std::int64_t index = static_cast<std::int64_t>(dim) - (3 - tensor.dim());
  return index >= 2 ? tensor.stride(index) : 0;
}

/// Offset of a place, the spatial dimensions in the order of Spatial.
std::int64_t offset_of(const at::Tensor& tensor, std::int64_t first, std::int64_t second, const Spatial& at) {
  std::int64_t offset = first * tensor.stride(0) + second * tensor.stride(1);
  for (std::size_t dim = 0; dim < 3; ++dim) offset += at[dim] * stride_of(tensor, dim);
  return offset;
}

Spatial place(std::int64_t index, const Spatial& sizes) {
  return {index / (sizes[1] * sizes[2]), index / sizes[2] % sizes[1], index % sizes[2]};
}

}  // namespace

template <typename T>
double ConvolutionGradCall::weight_sum(std::int64_t out_channel, std::int64_t in_channel, const Spatial& at) const {
  const ConvolutionCall& f = forward;
  const std::int64_t in_group = f.in_channels() / f.groups;
  const std::int64_t channel = out_channel / (f.out_channels() / f.groups) * in_group + in_channel;
  const T* x = f.x->const_data_ptr<T>();
  const T* g = grad->const_data_ptr<T>();
  double sum = 0;
  const std::int64_t pixels = f.out[0] * f.out[1] * f.out[2];
  for (std::int64_t image = 0; image < f.x->size(0); ++image) {
    for (std::int64_t pixel = 0; pixel < pixels; ++pixel) {
      const Spatial o = place(pixel, f.out);
      Spatial i{};
      bool inside = true;
      for (std::size_t dim = 0; dim < 3; ++dim) {
        i[dim] = o[dim] * f.stride[dim] - f.padding[dim] + at[dim] * f.dilation[dim];
        inside = inside && i[dim] >= 0 && i[dim] < f.in[dim];
      }
      if (!inside) continue;
      sum += static_cast<double>(x[offset_of(*f.x, image, channel, i)]) * static_cast<double>(g[offset_of(*grad, image, out_channel, o)]);
    }
  }
  return sum;
}

template <typename T>
bool ConvolutionGradCall::weight_is_accurate(const at::Tensor& stock, const at::Tensor& result) const {
  if (forward.transposed) {  // the weight's gradient of the plain convolution that leads back, from the result to the image
    ConvolutionGradCall back = *this;
    back.grad = forward.x;
    back.forward.x = grad;
    back.forward.transposed = false;
    std::swap(back.forward.in, back.forward.out);
    return back.weight_is_accurate<T>(stock, result);
  }
  const T* s = stock.const_data_ptr<T>();
  const T* c = result.const_data_ptr<T>();
  const ConvolutionCall& f = forward;
  const std::int64_t window = f.kernel[0] * f.kernel[1] * f.kernel[2];
  const std::int64_t of_one = f.x->size(0) * f.out[0] * f.out[1] * f.out[2];
  const std::int64_t count = std::clamp<std::int64_t>(kSampledProducts / of_one, 4, 64);
  const std::int64_t in_group = f.in_channels() / f.groups;
  Samples samples;
  spread(stock.numel(), std::min(count, stock.numel()), [&](std::int64_t index) {
    const Spatial at = place(index % window, f.kernel);
    const std::int64_t in_channel = index / window % in_group;
    const std::int64_t out_channel = index / window / in_group;
    const std::int64_t offset = offset_of(stock, out_channel, in_channel, at);
    samples.add(weight_sum<T>(out_channel, in_channel, at), s[offset], c[offset]);
  });
  return samples.pass(1, s, c, stock.numel(), kPrecision<T>);
}

/// The gradient of the image is the transposed convolution of the result's, or, of a transposed one, the plain one.
template <typename T>
bool ConvolutionGradCall::image_is_accurate(const at::Tensor& stock, const at::Tensor& result) const {
  ConvolutionCall back = forward;
  back.transposed = !forward.transposed;
  back.x = grad;
  back.in = forward.out;
  back.out = forward.in;
  const T* s = stock.const_data_ptr<T>();
  const T* c = result.const_data_ptr<T>();
  const std::int64_t pixels = back.out[0] * back.out[1] * back.out[2];
  const std::int64_t channels_in = forward.in_channels();
  const std::int64_t places = std::min(stock.size(0) * pixels, kSampledPlaces);
  const std::int64_t of_one = forward.out_channels() / forward.groups * forward.kernel[0] * forward.kernel[1] * forward.kernel[2];
  const std::int64_t channels = std::clamp<std::int64_t>(kSampledProducts / (places * of_one), 1, channels_in);
  Samples samples;
  spread(stock.size(0) * pixels, places, [&](std::int64_t index) {
    const Spatial at = place(index % pixels, back.out);
    spread(channels_in, channels, [&](std::int64_t channel) {
      const std::int64_t offset = offset_of(stock, index / pixels, channel, at);
      samples.add(back.sum_at<T>(index / pixels, channel, at), s[offset], c[offset]);
    });
  });
  return samples.pass(1, s, c, stock.numel(), kPrecision<T>);
}

template <typename T>
bool ConvolutionGradCall::accurate_as(const Outputs& stock, const Outputs& result) const {
  if (!stock.first.is_non_overlapping_and_dense() || !weight_is_accurate<T>(stock.first, result.first)) return false;
  const at::Tensor& image = stock.more[0];
  if (image.defined() && (!image.is_non_overlapping_and_dense() || !image_is_accurate<T>(image, result.more[0]))) return false;
  return true;  // the bias's is a sum in float32 by torch; before a batch norm it is rounding noise, in which no two kernels agree
}

bool ConvolutionGradCall::accurate(const Outputs& stock, const Outputs& result, int /*candidate*/) const {
  if (forward.dtype == at::kHalf) return accurate_as<at::Half>(stock, result);
  return forward.dtype == at::kFloat ? accurate_as<float>(stock, result) : accurate_as<at::BFloat16>(stock, result);
}

/// One pixel of each channel of each image: NaN of a sample is in all of them.
template <typename T>
bool ConvolutionGradCall::gradients_finite_as() const {
  const T* data = grad->const_data_ptr<T>();
  for (std::int64_t image = 0; image < grad->size(0); ++image) {
    for (std::int64_t channel = 0; channel < grad->size(1); ++channel) {
      if (!std::isfinite(static_cast<float>(data[image * grad->stride(0) + channel * grad->stride(1)]))) return false;
    }
  }
  return true;
}

bool ConvolutionGradCall::gradients_finite() const {
  if (forward.dtype == at::kHalf) return true;  // scaled losses overflow now and then: the program's scaler looks
  return forward.dtype == at::kFloat ? gradients_finite_as<float>() : gradients_finite_as<at::BFloat16>();
}

}  // namespace ipexrun::preload
