// Windows of images of awkward sizes, for the products that take them.
#pragma once

#include <random>

#include "kernels/windows.h"

namespace ipexrun::kernels::test {

struct WindowCase {
  ImageWindows windows;
  std::int64_t rows = 0;  ///< of the product
  std::int64_t k = 0;
  std::int64_t elements = 0;  ///< of the images, up to the last pixel's last channel
};

/// Case i: strides, dilation, padding wider than the window's reach, pixels and rows with gaps between them, one image or two.
inline WindowCase window_case(int i, std::mt19937& random) {
  const auto pick = [&random](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  WindowCase made;
  ImageWindows& w = made.windows;
  const std::int64_t images = pick(1, 2);
  w.channels = i % 4 == 0 ? pick(60, 300) : pick(1, 40);
  made.k = w.channels;
  for (int axis = 0; axis < 2; ++axis) {
    w.kernel[axis] = pick(1, 4);
    w.stride[axis] = pick(1, 3);
    w.dilation[axis] = pick(1, 2);
    w.padding[axis] = pick(0, 3);
    const std::int64_t reach = w.dilation[axis] * (w.kernel[axis] - 1) + 1;
    w.in[axis] = pick(1, 9);
    if (w.in[axis] + 2 * w.padding[axis] < reach) w.in[axis] = reach;
    w.out[axis] = (w.in[axis] + 2 * w.padding[axis] - reach) / w.stride[axis] + 1;
    made.k *= w.kernel[axis];
  }
  w.pixel_stride = w.channels + (i % 3 == 0 ? pick(0, 4) : 0);
  w.row_stride = w.pixel_stride * w.in[1] + (i % 5 == 0 ? 3 : 0);
  w.image_stride = w.row_stride * w.in[0];
  made.rows = images * w.out[0] * w.out[1];
  made.elements = (images - 1) * w.image_stride + (w.in[0] - 1) * w.row_stride + (w.in[1] - 1) * w.pixel_stride + w.channels;
  return made;
}

}  // namespace ipexrun::kernels::test
