// conv: convolution of 1 to 3 spatial dimensions, channels last: each pixel's channels are adjacent, pixels lie by strides.
//
// Of the result: act((sum of products + bias) + residual), or act(...) + residual; each part may be missing.
// Dense and grouped: bf16 products, whatever the image's type, and fp32 sums from the bias on, in an order that depends on the weight
// alone: tiles are loaded from rows laid out with zeros at their ends, amx/conv.cpp. Groups of few channels are multiplied together, the
// weights between them being zeros; where the image is not finite they are left to the reference. Depthwise (as many groups as channels,
// one output each): products and sums in fp32, in the order of the taps, bias first. 32 channels of the rows that windows reach over are
// laid out once as fp32, with zeros at both ends, and 7 outputs side by side are summed in registers: simd/depthwise.cpp. The truth is
// ref/conv.cpp. bf16 results are rounded once, after everything. Weights that are not finite: where a window meets padding they may make
// NaN or not. The result of an element does not depend on the number of threads. Thread rule: may be called concurrently. Any alignment of
// whole elements will do. Each call may take scratch (thread-local, bounded by scratch.h); when there is none it returns false and the
// result is undefined.
#pragma once

#include <cstddef>
#include <cstdint>

#include "configs/base/isa.h"
#include "kernels/dtype.h"
#include "kernels/parallel.h"

namespace ipexrun::kernels {

/// Spatial dimensions of every call; the missing ones come first and have one pixel.
inline constexpr int kConvAxes = 3;

/// Along one dimension: output i meets inputs i * stride - pad + k * dilation; what lies outside counts as 0. Padding behind is what `out`
/// asks for.
struct ConvAxis {
  std::int64_t in = 1;
  std::int64_t out = 1;
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t pad = 0;
  std::int64_t dilation = 1;
};

/// In elements.
struct ConvStrides {
  std::int64_t image = 0;
  std::int64_t axis[kConvAxes] = {};
};

/// Of `channels` adjacent ones, images and pixels without gaps between them; `sizes` of the three dimensions.
constexpr ConvStrides dense_strides(std::int64_t channels, const std::int64_t (&sizes)[kConvAxes]) {
  return {channels * sizes[0] * sizes[1] * sizes[2], {channels * sizes[1] * sizes[2], channels * sizes[2], channels}};
}

enum class ConvActivation : int {
  kNone = 0,
  kClamp = 1,  ///< to [low, high]: relu has [0, inf], relu6 [0, 6]. NaN stays
  kHardswish = 2,
  kSilu = 3,
  kGelu = 4,
  kGeluTanh = 5
};

struct ConvArgs {
  const void* from = nullptr;
  DType from_dtype = DType::kF32;
  ConvStrides from_strides;
  const void* packed = nullptr;      ///< of pack_conv()
  DType packed_dtype = DType::kF32;  ///< as it was made
  const void* bias = nullptr;        ///< [out_channels], null = none
  DType bias_dtype = DType::kF32;
  const void* residual = nullptr;  ///< of to_dtype and the size of the result; may be `to` with its strides. Null = none
  ConvStrides residual_strides;
  bool residual_after = false;  ///< added to what the activation gives
  void* to = nullptr;           ///< must not overlap `from`
  DType to_dtype = DType::kF32;
  ConvStrides to_strides;
  std::int64_t images = 0;
  std::int64_t in_channels = 0;
  std::int64_t out_channels = 0;
  std::int64_t groups = 1;  ///< divides both
  ConvAxis axes[kConvAxes];
  ConvActivation activation = ConvActivation::kNone;
  float low = 0;
  float high = 0;
};

/// A weight [out_channels, in_channels / groups, kernel...] by strides, in elements.
struct ConvWeight {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  std::int64_t in_channels = 0;
  std::int64_t out_channels = 0;
  std::int64_t groups = 1;
  std::int64_t kernel[kConvAxes] = {1, 1, 1};
  std::int64_t out_stride = 0;
  std::int64_t in_stride = 0;
  std::int64_t strides[kConvAxes] = {};
  const float* scale = nullptr;      ///< [out_channels] that the weight is multiplied by, null = none
  DType packed_dtype = DType::kF32;  ///< of the pack: bf16 rounds, what was bf16 and has no scale stays as it is. Dense: bf16
};

/// True when this form of convolution exists here: depthwise, and all others from a pack of bf16. What is not known is refused by what
/// follows.
bool conv_known(std::int64_t in_channels, std::int64_t out_channels, std::int64_t groups, DType packed_dtype);

/// 0 when the form is not known, or beyond memory.
std::size_t conv_packed_bytes(const ConvWeight& weight);
/// The pack serves every instruction set. Dense forms share the work among the workers.
void pack_conv(const ConvWeight& weight, void* to, const Parallel& parallel = {});

/// Batch norm over the result of a convolution: scale = weight / sqrt(variance + eps), bias = (bias - mean) * scale + shift. Null `weight`
/// = 1, `shift`, `bias` = 0. `scale` goes into ConvWeight, `folded` into ConvArgs.
struct BatchNorm {
  const float* mean = nullptr;
  const float* variance = nullptr;
  const float* weight = nullptr;
  const float* shift = nullptr;
  double eps = 1e-5;
};
void fold_batch_norm(const BatchNorm& norm, const float* bias, std::int64_t channels, float* scale, float* folded);

/// True when `isa` has a variant that is worth offering: not the reference.
bool conv_supported(const ConvArgs& args, IsaSet isa);

/// Uses at most `isa`; falls back to slower variants down to the reference, so it is always right where the form is known.
bool convolve(const ConvArgs& args, const Parallel& parallel, IsaSet isa);

/// Name of the variant that convolve() uses.
const char* conv_variant(const ConvArgs& args, IsaSet isa);

}  // namespace ipexrun::kernels
