// The risk: a window that meets a neighbouring pixel, row or image instead of padding, channels of a tail that are mixed up or written
// past, an overlapping part computed from what was already written, a batch norm folded wrongly, bits that depend on threads.
#include "kernels/conv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/choose.h"
#include "kernels/conv_variants.h"
#include "kernels/ref/conv.h"
#include "tests/unit/kernels/buffer.h"

namespace ipexrun::kernels::test {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kBf16};
constexpr ConvActivation kActivations[] = {ConvActivation::kNone, ConvActivation::kClamp, ConvActivation::kHardswish,
                                           ConvActivation::kSilu, ConvActivation::kGelu,  ConvActivation::kGeluTanh};
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Shape {
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
};

ConvAxis axis_of(std::int64_t in, std::int64_t kernel, std::int64_t stride = 1, std::int64_t pad = 0, std::int64_t behind = -1,
                 std::int64_t dilation = 1) {
  if (behind < 0) behind = pad;
  const std::int64_t reach = in + pad + behind - (kernel - 1) * dilation - 1;
  return {in, reach < 0 ? 0 : reach / stride + 1, kernel, stride, pad, dilation};
}

Shape depthwise_of(std::int64_t channels, ConvAxis down, ConvAxis across) {
  Shape s;
  s.in_channels = s.out_channels = s.groups = channels;
  s.axes[1] = down;
  s.axes[2] = across;
  return s;
}

/// Buffers of a call, and its truth from the weights as they were before packing.
class Problem {
 public:
  Problem(const Shape& s, DType dtype, std::mt19937& random) : shape_(s), dtype_(dtype) {
    for (int i = 0; i < kConvAxes; ++i) {
      in_[i] = s.axes[i].in;
      out_[i] = s.axes[i].out;
      taps_ *= s.axes[i].kernel;
    }
    args_.from_strides = strides_of(s.in_channels, in_);
    args_.to_strides = strides_of(s.out_channels, out_);
    args_.residual_strides = strides_of(s.out_channels, out_);
    from_ = Buffer(dtype, size_of(args_.from_strides, s.in_channels, in_), 3);
    to_ = Buffer(dtype, size_of(args_.to_strides, s.out_channels, out_), 5);
    residual_ = Buffer(dtype, s.residual == 0 ? 0 : size_of(args_.residual_strides, s.out_channels, out_), 1);
    weight_ = Buffer(dtype, s.out_channels * (s.in_channels / s.groups) * taps_, 1);
    const DType bias_dtype = s.gap == 0 ? dtype : DType::kF32;
    bias_ = Buffer(bias_dtype, s.out_channels, 1);
    scale_ = Buffer(DType::kF32, s.out_channels, 2);
    from_.fill(random);
    residual_.fill(random);
    weight_.fill(random);
    bias_.fill(random);
    scale_.fill(random, 1, 0.2f);
    args_.from_dtype = args_.to_dtype = dtype;
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
    weight.packed_dtype = args_.packed_dtype = shape_.scaled ? DType::kF32 : dtype_;
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
        const double product = from_.get(offset(args_.from_strides, image, place) + group * in_group + i) * weight;
        sum += product;
        *magnitude += std::fabs(product);
      }
    }
    return sum;
  }

  Shape shape_;
  DType dtype_;
  std::int64_t in_[kConvAxes];
  std::int64_t out_[kConvAxes];
  std::int64_t taps_ = 1;
  ConvArgs args_;
  Buffer from_, to_, residual_, weight_, bias_, scale_;
  Guarded packed_;
};

std::string describe(const Shape& s, DType dtype) {
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

class ConvOnIsa : public testing::TestWithParam<IsaSet> {
 protected:
  std::mt19937 random_{20250202};

  void check(const Shape& s) {
    for (const DType dtype : kTypes) {
      Problem problem(s, dtype, random_);
      ASSERT_TRUE(convolve(problem.args(), {}, GetParam()));
      ASSERT_EQ(problem.difference(), "") << describe(s, dtype);
    }
  }
};

TEST_P(ConvOnIsa, DepthwiseOfAnyNumberOfChannels) {
  for (const std::int64_t channels : {1, 2, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 40, 47, 48, 49, 63, 64, 65, 96, 100}) {
    for (const std::int64_t gap : {0, 3}) {
      Shape s = depthwise_of(channels, axis_of(5, 3, 1, 1), axis_of(9, 3, 1, 1));
      s.images = 2;
      s.gap = gap;
      check(s);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(ConvOnIsa, DepthwiseWindows) {
  for (const std::int64_t kernel : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13}) {
    for (const std::int64_t stride : {1, 2, 3}) {
      for (const std::int64_t dilation : {1, 2}) {
        for (const std::int64_t width : {1, 6, 7, 8, 15, 30}) {
          Shape s = depthwise_of(33, axis_of(4, 3, stride, 1, 1), axis_of(width, kernel, stride, kernel / 2, kernel, dilation));
          check(s);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

/// Rows that are cut into segments, and kernels that are higher than the image or lie beside it.
TEST_P(ConvOnIsa, DepthwiseOfLongRowsAndHighWindows) {
  for (const std::int64_t width : {83, 84, 85, 86, 127, 170, 400}) {
    check(depthwise_of(17, axis_of(1, 1), axis_of(width, 4, 1, 3, 0)));
    check(depthwise_of(17, axis_of(4, 7, 2, 3), axis_of(width, 7, 2, 3)));
    if (HasFatalFailure()) return;
  }
  check(depthwise_of(20, axis_of(3, 7, 1, 6, 5), axis_of(2, 9, 1, 8, 8)));
  check(depthwise_of(20, axis_of(2, 3, 2, 9, 9, 4), axis_of(2, 3, 3, 11, 9, 5)));
  check(depthwise_of(20, axis_of(40, 31, 1, 15), axis_of(40, 31, 1, 15)));
}

TEST_P(ConvOnIsa, DepthwiseOfThreeDimensions) {
  for (const std::int64_t stride : {1, 2}) {
    for (const std::int64_t dilation : {1, 2}) {
      Shape s = depthwise_of(35, axis_of(6, 3, stride, 1, 2, dilation), axis_of(9, 3, stride, 1, 0, dilation));
      s.axes[0] = axis_of(5, 3, stride, 1, 1, dilation);
      s.images = 2;
      s.gap = 1;
      check(s);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(ConvOnIsa, WhatComesAfterTheSum) {
  for (const ConvActivation activation : kActivations) {
    for (const int residual : {0, 1, 2}) {
      for (const bool scaled : {false, true}) {
        for (const std::int64_t channels : {5, 32, 43}) {
          Shape s = depthwise_of(channels, axis_of(4, 3, 1, 1), axis_of(10, 3, 1, 1));
          s.activation = activation;
          s.residual = residual;
          s.scaled = scaled;
          s.bias = channels != 5;
          s.gap = channels == 43 ? 2 : 0;
          check(s);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(ConvOnIsa, TheResidualMayBeTheResult) {
  for (const DType dtype : kTypes) {
    Shape s = depthwise_of(40, axis_of(6, 3, 1, 1), axis_of(10, 3, 1, 1));
    s.residual = 1;
    Problem problem(s, dtype, random_);
    ASSERT_TRUE(convolve(problem.args(), {}, GetParam()));
    const std::string expected = problem.to().bytes();
    std::memcpy(problem.to().data(), problem.residual().data(), static_cast<std::size_t>(problem.to().count() * bytes_of(dtype)));
    problem.args().residual = problem.to().data();
    ASSERT_TRUE(convolve(problem.args(), {}, GetParam()));
    EXPECT_EQ(problem.to().bytes(), expected);
  }
}

TEST_P(ConvOnIsa, NothingToDo) {
  for (const int empty : {0, 1, 2, 3}) {
    Shape s = depthwise_of(empty == 0 ? 0 : 9, axis_of(4, 3), axis_of(empty == 1 ? 1 : 4, 3));
    if (empty == 0) s.groups = 1;
    if (empty == 2) s.images = 0;
    if (empty == 3) s.axes[1] = {0, 3, 3, 1, 3, 1};  // an image without rows: windows meet padding alone
    check(s);
  }
}

TEST_P(ConvOnIsa, AnyNumberOfThreads) {
  for (const DType dtype : kTypes) {
    for (const std::int64_t width : {9, 200}) {
      Shape s = depthwise_of(70, axis_of(11, 3, 1, 1), axis_of(width, 5, 1, 2));
      s.images = 3;
      Problem problem(s, dtype, random_);
      ASSERT_TRUE(convolve(problem.args(), {}, GetParam()));
      ASSERT_EQ(problem.difference(), "");
      const std::string expected = problem.to().bytes();
      for (int threads = 2; threads <= 4; ++threads) {
        std::memset(problem.to().data(), 0, static_cast<std::size_t>(problem.to().count() * bytes_of(dtype)));
        ASSERT_TRUE(convolve(problem.args(), thread_parallel(threads), GetParam()));
        EXPECT_EQ(problem.to().bytes(), expected) << threads;
      }
    }
  }
}

TEST_P(ConvOnIsa, SpecialValues) {
  for (const DType dtype : kTypes) {
    for (const ConvActivation activation : kActivations) {
      Shape s = depthwise_of(33, axis_of(1, 1), axis_of(13, 3));
      s.activation = activation;
      Problem problem(s, dtype, random_);
      problem.from().set(3 * 33 + 5, kNan);
      problem.from().set(4 * 33 + 32, kNan);
      if (activation == ConvActivation::kNone || activation == ConvActivation::kClamp) {
        problem.from().set(7 * 33 + 1, kInf);
        problem.from().set(9 * 33 + 2, -kInf);
        problem.from().set(9 * 33 + 32, kInf);
      }
      problem.from().set(11 * 33 + 7, 1e-40f);
      ASSERT_TRUE(convolve(problem.args(), {}, GetParam()));
      EXPECT_EQ(problem.difference(), "") << describe(s, dtype);
    }
  }
}

TEST_P(ConvOnIsa, RandomShapes) {
  const auto pick = [&](std::int64_t low, std::int64_t high) { return std::uniform_int_distribution<std::int64_t>(low, high)(random_); };
  for (int round = 0; round < 150; ++round) {
    Shape s = depthwise_of(pick(1, 80), {}, {});
    s.images = pick(1, 2);
    for (int i = static_cast<int>(pick(0, 2)); i < kConvAxes; ++i) {
      const std::int64_t kernel = pick(1, 6);
      s.axes[i] = axis_of(pick(1, 12), kernel, pick(1, 3), pick(0, 3), pick(0, 3), pick(1, 3));
    }
    s.activation = kActivations[pick(0, 5)];
    s.residual = static_cast<int>(pick(0, 2));
    s.bias = pick(0, 1) == 1;
    s.gap = pick(0, 2) * pick(0, 3);
    check(s);
    if (HasFatalFailure()) return;
  }
}

TEST_P(ConvOnIsa, UsesTheVariantOfItsLevel) {
  Problem problem(depthwise_of(8, axis_of(3, 3), axis_of(3, 3)), DType::kF32, random_);
  const DepthwiseVariants table = depthwise_variants();
  for (std::size_t i = 0; i < table.count; ++i) {
    if (table.first[i].needs == GetParam()) {
      EXPECT_STREQ(conv_variant(problem.args(), GetParam()), table.first[i].name);
      EXPECT_EQ(conv_supported(problem.args(), GetParam()), i + 1 < table.count);
    }
  }
}

TEST(Conv, WindowsThatReachVeryFarAreLeftToTheReference) {
  std::mt19937 random(1);
  Shape s = depthwise_of(3, axis_of(2, 1), axis_of(4, 2, 1, 0, 0, 3));
  Problem near(s, DType::kF32, random);
  s.axes[2] = {4, 2, 2, 1, 0, 3'000'000'000};
  Problem far(s, DType::kF32, random);
  EXPECT_TRUE(conv_supported(near.args(), isa_of_process()) || levels_of(depthwise_variants()).size() == 1);
  EXPECT_FALSE(conv_supported(far.args(), isa_of_process()));
  ASSERT_TRUE(convolve(far.args(), {}, isa_of_process()));
  EXPECT_EQ(far.difference(), "");
}

TEST(Conv, BatchNormIsFolded) {
  const float mean[] = {1, -2};
  const float variance[] = {4, 0};
  const float weight[] = {3, 0.5f};
  const float shift[] = {10, 20};
  const float bias[] = {5, 7};
  float scale[2];
  float folded[2];
  fold_batch_norm({mean, variance, weight, shift, 0.25}, bias, 2, scale, folded);
  EXPECT_FLOAT_EQ(scale[0], static_cast<float>(3 / std::sqrt(4.25)));
  EXPECT_FLOAT_EQ(scale[1], 1.0f);
  EXPECT_FLOAT_EQ(folded[0], static_cast<float>(10 + 4 * 3 / std::sqrt(4.25)));
  EXPECT_FLOAT_EQ(folded[1], 29.0f);
  fold_batch_norm({mean, variance, nullptr, nullptr, 0.25}, nullptr, 2, scale, folded);
  EXPECT_FLOAT_EQ(scale[1], 2.0f);
  EXPECT_FLOAT_EQ(folded[1], 4.0f);
}

INSTANTIATE_TEST_SUITE_P(Levels, ConvOnIsa, testing::ValuesIn(levels_of(depthwise_variants())),
                         [](const auto& level) { return std::string(choose(depthwise_variants(), level.param).name); });

}  // namespace
}  // namespace ipexrun::kernels::test
