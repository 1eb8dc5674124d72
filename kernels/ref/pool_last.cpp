// The truth of pool_last: one element after the other, sums in doubles.
#include "kernels/ref/pool_last.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/ref/element.h"

namespace ipexrun::kernels::ref {
namespace {

/// visit(value, first element of its channel in the image, the window's rows, its columns) gives the result of each output of the items.
template <typename Result>
void for_each(const PoolLastArgs& args, std::int64_t begin, std::int64_t end, Result result) {
  const std::int64_t blocks = ceil_div(args.channels, kPoolLastChannels);
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t row = item / blocks;
    const std::int64_t first = item % blocks * kPoolLastChannels;
    const std::int64_t image = row / args.out_height;
    const PoolLastRange rows = pool_last_range(args.down, args.height, row % args.out_height);
    for (std::int64_t x = 0; x < args.out_width; ++x) {
      const PoolLastRange columns = pool_last_range(args.across, args.width, x);
      for (std::int64_t c = first; c < std::min(first + kPoolLastChannels, args.channels); ++c) {
        const auto at = [&](std::int64_t y, std::int64_t column) {
          return get(args.from, args.from_dtype, ((image * args.height + y) * args.width + column) * args.channels + c);
        };
        put(args.to, args.to_dtype, (row * args.out_width + x) * args.channels + c, result(at, rows, columns));
      }
    }
  }
}

}  // namespace

void max_pool_last(const PoolLastArgs& args, std::int64_t begin, std::int64_t end) {
  for_each(args, begin, end, [&](const auto& at, const PoolLastRange& rows, const PoolLastRange& columns) {
    double most = -std::numeric_limits<double>::infinity();
    for (std::int64_t y = rows.begin; y < rows.end; y += args.down.dilation) {
      for (std::int64_t x = columns.begin; x < columns.end; x += args.across.dilation) {
        const double value = at(y, x);
        if (value > most || std::isnan(value)) most = value;
      }
    }
    return most;
  });
}

void average_pool_last(const PoolLastArgs& args, std::int64_t begin, std::int64_t end) {
  for_each(args, begin, end, [&](const auto& at, const PoolLastRange& rows, const PoolLastRange& columns) {
    if (rows.begin >= rows.end || columns.begin >= columns.end) return 0.0;
    double sum = 0;
    for (std::int64_t y = rows.begin; y < rows.end; ++y) {
      for (std::int64_t x = columns.begin; x < columns.end; ++x) sum += at(y, x);
    }
    const std::int64_t inside = (rows.end - rows.begin) * (columns.end - columns.begin);
    const std::int64_t count = args.divisor != 0 ? args.divisor : args.count_padding ? rows.counted * columns.counted : inside;
    return sum / static_cast<double>(count);
  });
}

}  // namespace ipexrun::kernels::ref
