// Where an element of a window lies.
#pragma once

#include "kernels/windows.h"

namespace ipexrun::kernels::ref {

/// Of row m and column k of A: elements from the first pixel of the first image; -1 outside of the image, where zeros are.
inline std::int64_t window_element(const ImageWindows& w, std::int64_t m, std::int64_t k) {
  const std::int64_t tap = k / w.channels;
  const std::int64_t y = m / w.out[1] % w.out[0] * w.stride[0] - w.padding[0] + tap / w.kernel[1] * w.dilation[0];
  const std::int64_t x = m % w.out[1] * w.stride[1] - w.padding[1] + tap % w.kernel[1] * w.dilation[1];
  if (y < 0 || y >= w.in[0] || x < 0 || x >= w.in[1]) return -1;
  return m / w.out[1] / w.out[0] * w.image_stride + y * w.row_stride + x * w.pixel_stride + k % w.channels;
}

}  // namespace ipexrun::kernels::ref
