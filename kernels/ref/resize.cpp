// The truth of resize: one output after the other, in doubles.
#include "kernels/ref/resize.h"

#include "kernels/ref/element.h"

namespace ipexrun::kernels::ref {

void resize(const ResizeArgs& args, std::int64_t row_begin, std::int64_t row_end, void*) {
  const ResizeAxis& down = args.down;
  const ResizeAxis& across = args.across;
  const auto weight = [](const ResizeAxis& axis, std::int64_t at) {
    return axis.weights != nullptr ? static_cast<double>(axis.weights[at]) : 1.0;
  };
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    const std::int64_t first = row / down.outputs * down.size * across.size;
    const std::int64_t y = row % down.outputs;
    for (std::int64_t x = 0; x < across.outputs; ++x) {
      double sum = 0;
      for (int v = 0; v < down.taps; ++v) {
        double along = 0;
        for (int h = 0; h < across.taps; ++h) {
          const std::int64_t at = first + down.places[v * down.pitch + y] * across.size + across.places[h * across.pitch + x];
          along += weight(across, h * across.pitch + x) * get(args.from, args.dtype, at);
        }
        sum += weight(down, v * down.pitch + y) * along;
      }
      put(args.to, args.dtype, row * across.outputs + x, sum);
    }
  }
}

}  // namespace ipexrun::kernels::ref
