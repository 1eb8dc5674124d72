// The pieces that a row of windows consists of, for the variants that lay rows out in scratch.
#pragma once

#include "kernels/windows.h"

namespace ipexrun::kernels {
namespace {

/// Where a row of A lies among the images. Rows follow one another: divisions for each of them took as long as what they are for.
struct WindowAt {
  std::int64_t x;  ///< of the result
  std::int64_t y;
  std::int64_t image;

  WindowAt(const ImageWindows& w, std::int64_t row) : x(row % w.out[1]), y(row / w.out[1] % w.out[0]), image(row / w.out[1] / w.out[0]) {}
  void next(const ImageWindows& w) {
    if (++x < w.out[1]) return;
    x = 0;
    if (++y < w.out[0]) return;
    y = 0;
    ++image;
  }
};

/// Whether the lines of a window that meet no padding are one piece each, and then for one row whether that holds: it begins `from`
/// elements behind the first pixel of the first image.
inline bool has_lines(const ImageWindows& w) { return w.dilation[1] == 1 && w.pixel_stride == w.channels; }
inline bool lines_of_window(const ImageWindows& w, const WindowAt& at, std::int64_t* from) {
  const std::int64_t x = at.x * w.stride[1] - w.padding[1];
  const std::int64_t y = at.y * w.stride[0] - w.padding[0];
  *from = at.image * w.image_stride + y * w.row_stride + x * w.pixel_stride;
  return x >= 0 && y >= 0 && x + w.kernel[1] <= w.in[1] && y + (w.kernel[0] - 1) * w.dilation[0] < w.in[0];
}

/// put(from, count, k) for all of that row in the order of k: `count` elements that lie side by side, `from` elements behind the first
/// pixel of the first image, or zeros where `from` is -1. Pixels that are neighbours in the image and in the window are one piece.
template <typename Put>
inline void for_pieces_of_window(const ImageWindows& w, const WindowAt& at, const Put& put) {
  const bool run = has_lines(w);
  const std::int64_t x = at.x * w.stride[1] - w.padding[1];
  const std::int64_t y = at.y * w.stride[0] - w.padding[0];
  const std::int64_t image = at.image * w.image_stride;
  std::int64_t k = 0;
  for (std::int64_t ky = 0; ky < w.kernel[0]; ++ky) {
    const std::int64_t in_y = y + ky * w.dilation[0];
    if (in_y < 0 || in_y >= w.in[0]) {
      put(-1, w.kernel[1] * w.channels, k);
      k += w.kernel[1] * w.channels;
      continue;
    }
    const std::int64_t line = image + in_y * w.row_stride;
    if (run) {
      const std::int64_t before = x < 0 ? (-x < w.kernel[1] ? -x : w.kernel[1]) : 0;
      const std::int64_t inside = w.in[1] - x < w.kernel[1] ? w.in[1] - x : w.kernel[1];
      const std::int64_t end = inside > before ? inside : before;
      if (before > 0) put(-1, before * w.channels, k);
      if (end > before) put(line + (x + before) * w.pixel_stride, (end - before) * w.channels, k + before * w.channels);
      if (end < w.kernel[1]) put(-1, (w.kernel[1] - end) * w.channels, k + end * w.channels);
      k += w.kernel[1] * w.channels;
      continue;
    }
    for (std::int64_t kx = 0; kx < w.kernel[1]; ++kx, k += w.channels) {
      const std::int64_t in_x = x + kx * w.dilation[1];
      put(in_x < 0 || in_x >= w.in[1] ? -1 : line + in_x * w.pixel_stride, w.channels, k);
    }
  }
}

}  // namespace
}  // namespace ipexrun::kernels
