// Products of matrices as kernels take them, for operators that are products in disguise.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace ipexrun::preload::xpu {

/// Product of xpu/kernels/common.cl.
struct ProductShape {
  std::int64_t m, n, k;
  std::int64_t a[3], b[3], c[3], out[3];  ///< strides of row, column, batch, in elements
};
/// Window of xpu/kernels/gemm.cl: height, width.
struct ConvolutionWindow {
  std::int32_t in[2], out[2], stride[2], padding[2], dilation[2];
  std::int64_t image;  ///< elements of an image
};

/// out = a * columns (+ bias, by shape.c) without the columns in memory: row k of them is a channel and a place in the window, column n an
/// output place, all images' one after the other. shape.b is not looked at. False: not on this device or in this type, nothing was done.
bool multiply_windows(const at::Tensor& out, const at::Tensor& a, const at::Tensor& image, const at::Tensor& bias,
                      const ProductShape& shape, const ConvolutionWindow& window, int kernel_height, int kernel_width);

}  // namespace ipexrun::preload::xpu
