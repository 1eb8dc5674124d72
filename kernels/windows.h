// Rows of a product that are windows of images: a convolution as a product of matrices, without writing the windows out for the whole of an
// image.
#pragma once

#include <cstdint>

namespace ipexrun::kernels {

/// Rows of A that are windows of images, which a convolution multiplies: one pixel's channels lie side by side. Row (i * out[0] + y) *
/// out[1] + x is the window of pixel (y, x) of image i, column (ky * kernel[1] + kx) * channels + c its channel c there; zeros outside of
/// the image.
struct ImageWindows {
  std::int64_t channels = 0;
  std::int64_t in[2] = {};  ///< height, width
  std::int64_t out[2] = {};
  std::int64_t kernel[2] = {1, 1};
  std::int64_t stride[2] = {1, 1};
  std::int64_t padding[2] = {};  ///< in front
  std::int64_t dilation[2] = {1, 1};
  std::int64_t image_stride = 0;  ///< elements from an image to the next, from a row of pixels to the next, from a pixel to the next
  std::int64_t row_stride = 0;
  std::int64_t pixel_stride = 0;
};

}  // namespace ipexrun::kernels
