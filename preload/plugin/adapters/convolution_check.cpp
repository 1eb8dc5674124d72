// The accuracy rule for convolutions: places spread over the result against fp64, the whole result against stock's.
#include "preload/plugin/adapters/convolution_call.h"
#include "preload/plugin/adapters/sampling.h"

namespace ipexrun::preload {
namespace {

/// Stride of spatial dimension `dim` (0..2); dimensions that the tensor lacks have size 1, so theirs does not matter.
std::int64_t spatial_stride(const at::Tensor& tensor, std::size_t dim) {
  const std::int64_t index = static_cast<std::int64_t>(dim) - (3 - tensor.dim());
  return index >= 2 ? tensor.stride(index) : 0;
}

Spatial spatial_strides(const at::Tensor& tensor) {
  return {spatial_stride(tensor, 0), spatial_stride(tensor, 1), spatial_stride(tensor, 2)};
}

/// Which input index meets kernel index `k` at output index `o`; false when none does.
bool input_index(const ConvolutionCall& call, std::size_t dim, std::int64_t o, std::int64_t k, std::int64_t* index) {
  if (!call.transposed) {
    *index = o * call.stride[dim] - call.padding[dim] + k * call.dilation[dim];
  } else {
    const std::int64_t shifted = o + call.padding[dim] - k * call.dilation[dim];
    if (shifted < 0 || shifted % call.stride[dim] != 0) return false;
    *index = shifted / call.stride[dim];
  }
  return *index >= 0 && *index < call.in[dim];
}

}  // namespace

template <typename T>
double ConvolutionCall::sum_at(std::int64_t sample, std::int64_t channel, const Spatial& at) const {
  const Spatial xs = spatial_strides(*x);
  const Spatial ws = spatial_strides(*w);
  const std::int64_t in_group = in_channels() / groups;
  const std::int64_t group = channel / (out_channels() / groups);
  const T* x_data = x->const_data_ptr<T>() + sample * x->stride(0) + group * in_group * x->stride(1);
  const T* w_data = transposed
                        ? w->const_data_ptr<T>() + group * in_group * w->stride(0) + channel % (out_channels() / groups) * w->stride(1)
                        : w->const_data_ptr<T>() + channel * w->stride(0);
  const std::int64_t w_step = transposed ? w->stride(0) : w->stride(1);
  double sum = bias == nullptr ? 0 : static_cast<double>(bias->const_data_ptr<T>()[channel * bias->stride(0)]);
  Spatial k{};
  Spatial i{};
  for (k[0] = 0; k[0] < kernel[0]; ++k[0]) {
    if (!input_index(*this, 0, at[0], k[0], &i[0])) continue;
    for (k[1] = 0; k[1] < kernel[1]; ++k[1]) {
      if (!input_index(*this, 1, at[1], k[1], &i[1])) continue;
      for (k[2] = 0; k[2] < kernel[2]; ++k[2]) {
        if (!input_index(*this, 2, at[2], k[2], &i[2])) continue;
        const T* x_place = x_data + i[0] * xs[0] + i[1] * xs[1] + i[2] * xs[2];
        const T* w_place = w_data + k[0] * ws[0] + k[1] * ws[1] + k[2] * ws[2];
        for (std::int64_t c = 0; c < in_group; ++c) {
          sum += static_cast<double>(x_place[c * x->stride(1)]) * static_cast<double>(w_place[c * w_step]);
        }
      }
    }
  }
  return sum;
}

template double ConvolutionCall::sum_at<float>(std::int64_t, std::int64_t, const Spatial&) const;
template double ConvolutionCall::sum_at<at::Half>(std::int64_t, std::int64_t, const Spatial&) const;
template double ConvolutionCall::sum_at<at::BFloat16>(std::int64_t, std::int64_t, const Spatial&) const;

template <typename T>
bool ConvolutionCall::accurate_as(const at::Tensor& stock, const at::Tensor& candidate, Precision precision) const {
  // Dense and with equal strides: both lie in memory in the same order, whatever that is.
  const T* s = stock.const_data_ptr<T>();
  const T* c = candidate.const_data_ptr<T>();
  const Spatial strides = spatial_strides(stock);
  const std::int64_t pixels = out[0] * out[1] * out[2];
  const std::int64_t places = std::min(x->size(0) * pixels, kSampledPlaces);
  const std::int64_t channels = std::clamp<std::int64_t>(kSampledProducts / (places * depth()), 1, out_channels());
  Samples samples;
  spread(x->size(0) * pixels, places, [&](std::int64_t place) {
    const std::int64_t sample = place / pixels;
    const std::int64_t pixel = place % pixels;
    const Spatial at{pixel / (out[1] * out[2]), pixel / out[2] % out[1], pixel % out[2]};
    spread(out_channels(), channels, [&](std::int64_t channel) {
      const std::int64_t offset =
          sample * stock.stride(0) + channel * stock.stride(1) + at[0] * strides[0] + at[1] * strides[1] + at[2] * strides[2];
      samples.add(sum_at<T>(sample, channel, at), s[offset], c[offset]);
    });
  });
  return samples.pass(places, s, c, stock.numel(), precision);
}

bool ConvolutionCall::accurate(const Outputs& stock, const Outputs& result, int candidate) const {
  if (!stock.first.is_non_overlapping_and_dense()) return false;
  if (dtype == at::kHalf) return accurate_as<at::Half>(stock.first, result.first, Precision::kFloat16Op);
  if (dtype == at::kBFloat16) return accurate_as<at::BFloat16>(stock.first, result.first, Precision::kBf16Op);
  return accurate_as<float>(stock.first, result.first, candidate_is_bf16(candidate) ? Precision::kBf16Op : Precision::kFloat32);
}

}  // namespace ipexrun::preload
