// The accuracy rule for convolutions: places spread over the result against fp64, the whole result against stock's.
#include "preload/plugin/adapters/convolution_call.h"
#include "preload/plugin/adapters/sampling.h"

namespace ipexrun::preload {
namespace {

constexpr std::int64_t kSampledPlaces = 8;  ///< pixels, the corners of the batch included

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

template <typename T>
double value_at(const at::Tensor& tensor, std::int64_t offset) {
  return static_cast<double>(tensor.const_data_ptr<T>()[offset]);
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
  double sum = bias == nullptr ? 0 : value_at<T>(*bias, channel * bias->stride(0));
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

double ConvolutionCall::truth_at(std::int64_t sample, std::int64_t channel, const Spatial& at) const {
  return dtype == at::kBFloat16 ? sum_at<at::BFloat16>(sample, channel, at) : sum_at<float>(sample, channel, at);
}

bool ConvolutionCall::accurate(const Outputs& stock, const Outputs& result, int candidate) const {
  const at::Tensor& s = stock.first;
  const at::Tensor& c = result.first;
  if (!s.is_non_overlapping_and_dense()) return false;
  const bool half = dtype == at::kBFloat16;
  const Precision precision = half || candidate_is_bf16(candidate) ? Precision::kBf16Op : Precision::kFloat32;
  const Spatial ss = spatial_strides(s);
  const std::int64_t pixels = out[0] * out[1] * out[2];
  const std::int64_t places = std::min(x->size(0) * pixels, kSampledPlaces);
  const std::int64_t channels = std::clamp<std::int64_t>(kSampledProducts / (places * depth()), 1, out_channels());
  std::vector<double> truth;
  std::vector<double> stock_values;
  std::vector<double> candidate_values;
  spread(x->size(0) * pixels, places, [&](std::int64_t place) {
    const std::int64_t sample = place / pixels;
    const std::int64_t pixel = place % pixels;
    const Spatial at{pixel / (out[1] * out[2]), pixel / out[2] % out[1], pixel % out[2]};
    spread(out_channels(), channels, [&](std::int64_t channel) {
      const std::int64_t offset = sample * s.stride(0) + channel * s.stride(1) + at[0] * ss[0] + at[1] * ss[1] + at[2] * ss[2];
      truth.push_back(truth_at(sample, channel, at));
      stock_values.push_back(half ? value_at<at::BFloat16>(s, offset) : value_at<float>(s, offset));
      candidate_values.push_back(half ? value_at<at::BFloat16>(c, offset) : value_at<float>(c, offset));
    });
  });
  const Accuracy sampled = check_accuracy(truth, stock_values, candidate_values, static_cast<std::size_t>(places), precision);
  if (!sampled.pass) return false;
  // Dense and with equal strides: both lie in memory in the same order, whatever that is.
  Agreement whole;
  const auto count = static_cast<std::size_t>(s.numel());
  if (half) {
    whole.add_all(s.const_data_ptr<at::BFloat16>(), c.const_data_ptr<at::BFloat16>(), count);
  } else {
    whole.add_all(s.const_data_ptr<float>(), c.const_data_ptr<float>(), count);
  }
  return whole.holds(sampled.stock_error, precision);
}

}  // namespace ipexrun::preload
