// A convolution of any form with guarded buffers, and its truth from the weights as they were before packing.
#pragma once

#include <cmath>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/conv.h"
#include "kernels/ref/conv.h"
#include "tests/unit/kernels/buffer.h"

namespace ipexrun::kernels::test {

inline constexpr DType kTypes[] = {DType::kF32, DType::kBf16};
inline constexpr ConvActivation kActivations[] = {ConvActivation::kNone, ConvActivation::kClamp, ConvActivation::kHardswish,
                                                  ConvActivation::kSilu, ConvActivation::kGelu,  ConvActivation::kGeluTanh};
inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct ConvShape {
  std::int64_t images = 1;
  std::int64_t in_channels = 8;
  std::int64_t out_channels = 8;
  std::int64_t groups = 8;
  ConvAxis axes[kConvAxes];
  bool bias = true;
  int residual = 0;  ///< 1: before the activation, 2: after it
  ConvActivation activation = ConvActivation::kNone;
  std::int64_t gap = 0;  ///< elements between pixels, and some more between rows
  bool scaled = false;
  bool mixed = false;  ///< the result has the other type

  [[nodiscard]] bool dense() const { return in_channels != groups || out_channels != groups; }
};

inline ConvAxis axis_of(std::int64_t in, std::int64_t kernel, std::int64_t stride = 1, std::int64_t pad = 0, std::int64_t behind = -1,
                        std::int64_t dilation = 1) {
  if (behind < 0) behind = pad;
  const std::int64_t reach = in + pad + behind - (kernel - 1) * dilation - 1;
  return {in, reach < 0 ? 0 : reach / stride + 1, kernel, stride, pad, dilation};
}

inline ConvShape depthwise_of(std::int64_t channels, ConvAxis down, ConvAxis across) {
  ConvShape s;
  s.in_channels = s.out_channels = s.groups = channels;
  s.axes[1] = down;
  s.axes[2] = across;
  return s;
}

/// Buffers of a call, and its truth from the weights as they were before packing.
class ConvProblem {
 public:
  ConvProblem(const ConvShape& s, DType dtype, std::mt19937& random) : shape_(s), dtype_(dtype) {
    const DType to_dtype = s.mixed == (dtype == DType::kF32) ? DType::kBf16 : DType::kF32;
    for (int i = 0; i < kConvAxes; ++i) {
      in_[i] = s.axes[i].in;
      out_[i] = s.axes[i].out;
      taps_ *= s.axes[i].kernel;
    }
    args_.from_strides = strides_of(s.in_channels, in_);
    args_.to_strides = strides_of(s.out_channels, out_);
    args_.residual_strides = strides_of(s.out_channels, out_);
    from_ = Buffer(dtype, size_of(args_.from_strides, s.in_channels, in_), 3);
    to_ = Buffer(to_dtype, size_of(args_.to_strides, s.out_channels, out_), 5);
    residual_ = Buffer(to_dtype, s.residual == 0 ? 0 : size_of(args_.residual_strides, s.out_channels, out_), 1);
    weight_ = Buffer(dtype, s.out_channels * (s.in_channels / s.groups) * taps_, 1);
    const DType bias_dtype = s.gap == 0 ? dtype : DType::kF32;
    bias_ = Buffer(bias_dtype, s.out_channels, 1);
    scale_ = Buffer(DType::kF32, s.out_channels, 2);
    from_.fill(random);
    residual_.fill(random);
    weight_.fill(random);
    bias_.fill(random);
    scale_.fill(random, 1, 0.2f);
    args_.from_dtype = dtype;
    args_.to_dtype = to_dtype;
    args_.images = s.images;
    args_.in_channels = s.in_channels;
    args_.out_channels = s.out_channels;
    args_.groups = s.groups;
    for (int i = 0; i < kConvAxes; ++i) args_.axes[i] = s.axes[i];
    args_.activation = s.activation;
    args_.low = -0.5f;
    args_.high = 1.5f;
    args_.from = from_.data();
    args_.to = to_.data();
    args_.residual = s.residual == 0 ? nullptr : residual_.data();
    args_.residual_after = s.residual == 2;
    args_.bias = s.bias ? bias_.data() : nullptr;
    args_.bias_dtype = bias_dtype;
    pack();
  }

  void pack() {
    ConvWeight weight;
    weight.data = weight_.data();
    weight.dtype = dtype_;
    weight.in_channels = shape_.in_channels;
    weight.out_channels = shape_.out_channels;
    weight.groups = shape_.groups;
    for (int i = 0; i < kConvAxes; ++i) weight.kernel[i] = shape_.axes[i].kernel;
    weight.strides[2] = 1;
    weight.strides[1] = shape_.axes[2].kernel;
    weight.strides[0] = shape_.axes[2].kernel * shape_.axes[1].kernel;
    weight.in_stride = taps_;
    weight.out_stride = taps_ * (shape_.in_channels / shape_.groups);
    if (shape_.scaled) weight.scale = reinterpret_cast<const float*>(scale_.data());
    weight.packed_dtype = args_.packed_dtype = shape_.dense() ? DType::kBf16 : shape_.scaled ? DType::kF32 : dtype_;
    packed_ = Guarded(conv_packed_bytes(weight));
    pack_conv(weight, packed_.data());
    args_.packed = packed_.data();
  }

  ConvArgs& args() { return args_; }
  Buffer& from() { return from_; }
  Buffer& to() { return to_; }
  Buffer& weight() { return weight_; }
  Buffer& residual() { return residual_; }

  /// visit(index in `to`, image, place, channel)
  template <typename Visit>
  void for_each(Visit visit) const {
    std::int64_t at[kConvAxes];
    for (std::int64_t image = 0; image < shape_.images; ++image) {
      for (at[0] = 0; at[0] < out_[0]; ++at[0]) {
        for (at[1] = 0; at[1] < out_[1]; ++at[1]) {
          for (at[2] = 0; at[2] < out_[2]; ++at[2]) {
            for (std::int64_t c = 0; c < shape_.out_channels; ++c) visit(offset(args_.to_strides, image, at) + c, image, at, c);
          }
        }
      }
    }
  }

  /// Empty where all is near the truth and nothing else was written.
  [[nodiscard]] std::string difference() const {
    std::ostringstream text;
    if (!to_.front_is_clean()) text << "written in front of the result; ";
    std::vector<bool> ours(static_cast<std::size_t>(to_.count()), false);
    for_each([&](std::int64_t index, std::int64_t image, const std::int64_t(&at)[kConvAxes], std::int64_t c) {
      ours[static_cast<std::size_t>(index)] = true;
      double magnitude = 0;
      double sum = args_.bias == nullptr ? 0 : bias_.get(c);
      magnitude += std::fabs(sum);
      sum += products(image, at, c, &magnitude);
      const double residual = args_.residual == nullptr ? 0 : residual_.get(index);
      const double truth = args_.residual_after ? ref::conv_activation(args_, sum) + residual : ref::conv_activation(args_, sum + residual);
      const double seen = to_.get(index);
      if (std::isnan(truth) || std::isinf(truth)) {
        if (std::isnan(truth) ? !std::isnan(seen) : seen != truth) text << "at " << index << ": " << seen << ", truth " << truth << "; ";
      } else if (!near(seen, truth, 1e-6 * (magnitude + std::fabs(residual)) + 1e-30, args_.to_dtype)) {
        text << "at " << index << " (" << at[0] << "," << at[1] << "," << at[2] << "," << c << "): " << seen << ", truth " << truth << "; ";
      }
    });
    for (std::int64_t i = 0; i < to_.count(); ++i) {
      if (!ours[static_cast<std::size_t>(i)] && !to_.untouched(i)) text << "written at " << i << "; ";
    }
    return text.str().substr(0, 500);
  }

 private:
  [[nodiscard]] ConvStrides strides_of(std::int64_t channels, const std::int64_t (&sizes)[kConvAxes]) const {
    ConvStrides strides;
    strides.axis[2] = channels + shape_.gap;
    strides.axis[1] = strides.axis[2] * sizes[2] + 2 * shape_.gap;
    strides.axis[0] = strides.axis[1] * sizes[1] + shape_.gap;
    strides.image = strides.axis[0] * sizes[0] + 5 * shape_.gap;
    return strides;
  }
  /// Nothing lies behind the last channel.
  [[nodiscard]] std::int64_t size_of(const ConvStrides& strides, std::int64_t channels, const std::int64_t (&sizes)[kConvAxes]) const {
    if (shape_.images * channels * sizes[0] * sizes[1] * sizes[2] == 0) return 0;
    const std::int64_t last[kConvAxes] = {sizes[0] - 1, sizes[1] - 1, sizes[2] - 1};
    return offset(strides, shape_.images - 1, last) + channels;
  }
  static std::int64_t offset(const ConvStrides& strides, std::int64_t image, const std::int64_t (&at)[kConvAxes]) {
    return image * strides.image + at[0] * strides.axis[0] + at[1] * strides.axis[1] + at[2] * strides.axis[2];
  }
  static double rounded(double value) { return static_cast<double>(bf16_to_f32(bf16_from_f32(static_cast<float>(value)))); }
  [[nodiscard]] double products(std::int64_t image, const std::int64_t (&at)[kConvAxes], std::int64_t c, double* magnitude) const {
    const std::int64_t in_group = shape_.in_channels / shape_.groups;
    const std::int64_t group = c / (shape_.out_channels / shape_.groups);
    double sum = 0;
    for (std::int64_t tap = 0; tap < taps_; ++tap) {
      const std::int64_t k[kConvAxes] = {tap / (shape_.axes[1].kernel * shape_.axes[2].kernel),
                                         tap / shape_.axes[2].kernel % shape_.axes[1].kernel, tap % shape_.axes[2].kernel};
      std::int64_t place[kConvAxes];
      bool inside = true;
      for (int i = 0; i < kConvAxes; ++i) {
        place[i] = at[i] * shape_.axes[i].stride - shape_.axes[i].pad + k[i] * shape_.axes[i].dilation;
        inside = inside && place[i] >= 0 && place[i] < in_[i];
      }
      if (!inside) continue;
      for (std::int64_t i = 0; i < in_group; ++i) {
        double weight = weight_.get((c * in_group + i) * taps_ + tap);
        if (shape_.scaled) weight *= scale_.get(c);
        double pixel = from_.get(offset(args_.from_strides, image, place) + group * in_group + i);
        if (shape_.dense()) {
          weight = rounded(shape_.scaled ? static_cast<double>(static_cast<float>(weight)) : weight);
          pixel = rounded(pixel);
        }
        const double product = pixel * weight;
        sum += product;
        *magnitude += std::fabs(product);
      }
    }
    return sum;
  }

  ConvShape shape_;
  DType dtype_;
  std::int64_t in_[kConvAxes];
  std::int64_t out_[kConvAxes];
  std::int64_t taps_ = 1;
  ConvArgs args_;
  Buffer from_, to_, residual_, weight_, bias_, scale_;
  Guarded packed_;
};

inline std::string describe(const ConvShape& s, DType dtype) {
  std::ostringstream text;
  text << (dtype == DType::kF32 ? "f32 " : "bf16 ") << s.images << " images, channels " << s.in_channels << " to " << s.out_channels
       << " in " << s.groups << " groups, activation " << static_cast<int>(s.activation) << ", residual " << s.residual << ", gap "
       << s.gap;
  for (const ConvAxis& axis : s.axes) {
    text << "; " << axis.in << " to " << axis.out << " by " << axis.kernel << " stride " << axis.stride << " pad " << axis.pad
         << " dilation " << axis.dilation;
  }
  return text.str();
}

}  // namespace ipexrun::kernels::test
