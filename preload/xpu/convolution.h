// Convolutions with kernels of ours, of one to three dimensions, in any of the types float, half, bfloat16, double.
#pragma once

#include <array>

#include "preload/xpu/operands.h"

namespace ipexrun::preload::xpu {

/// As aten::convolution has them; lists of one value or one a dimension.
struct ConvolutionParameters {
  at::IntArrayRef stride, padding, dilation;
  bool transposed = false;
  at::IntArrayRef output_padding;
  std::int64_t groups = 1;
};

/// False: nothing was done. `bias` may be undefined. Throws DeviceError where the kernels do not build.
bool convolve(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, const ConvolutionParameters& parameters,
              at::Tensor& out);
/// Gradients of input, weight and bias, those of the mask.
bool convolve_backward(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight, const ConvolutionParameters& parameters,
                       std::array<bool, 3> mask, std::array<at::Tensor, 3>& out);

}  // namespace ipexrun::preload::xpu
