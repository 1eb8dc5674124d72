// The truth of pool: one window after the other, sums in doubles.
#include "kernels/ref/pool.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/ref/element.h"

namespace ipexrun::kernels::ref {
namespace {

/// The elements of a window along one dimension: begin, begin + dilation, ... below end. `counted`: padding included.
struct Range {
  std::int64_t begin;
  std::int64_t end;
  std::int64_t counted;
};

Range range_of(const PoolWindow& window, std::int64_t size, std::int64_t i) {
  const std::int64_t start = i * window.stride - window.pad;
  Range range{start, std::min(start + (window.size - 1) * window.dilation + 1, size),
              std::min(start + window.size, size + window.pad) - start};
  while (range.begin < 0) range.begin += window.dilation;
  return range;
}

/// visit(plane, output row, output column, index of the output)
template <typename Visit>
void for_each(const PoolArgs& args, std::int64_t row_begin, std::int64_t row_end, Visit visit) {
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    for (std::int64_t x = 0; x < args.out_width; ++x) visit(row / args.out_height, row % args.out_height, x, row * args.out_width + x);
  }
}

double sum_of(const PoolArgs& args, std::int64_t plane, const Range& rows, const Range& columns) {
  double sum = 0;
  for (std::int64_t y = rows.begin; y < rows.end; ++y) {
    for (std::int64_t x = columns.begin; x < columns.end; ++x)
      sum += get(args.from, args.dtype, (plane * args.height + y) * args.width + x);
  }
  return sum;
}

}  // namespace

void max_pool(const PoolArgs& args, const PoolPlan&, std::int64_t row_begin, std::int64_t row_end, void*) {
  for_each(args, row_begin, row_end, [&](std::int64_t plane, std::int64_t row, std::int64_t column, std::int64_t to) {
    const Range rows = range_of(args.down, args.height, row);
    const Range columns = range_of(args.across, args.width, column);
    double largest = -std::numeric_limits<double>::infinity();
    std::int64_t at = rows.begin * args.width + columns.begin;
    for (std::int64_t y = rows.begin; y < rows.end; y += args.down.dilation) {
      for (std::int64_t x = columns.begin; x < columns.end; x += args.across.dilation) {
        const double value = get(args.from, args.dtype, (plane * args.height + y) * args.width + x);
        if (!(value > largest) && !std::isnan(value)) continue;
        largest = value;
        at = y * args.width + x;
      }
    }
    put(args.to, args.dtype, to, largest);
    args.indices[to] = at;
  });
}

void average_pool(const PoolArgs& args, const PoolPlan&, std::int64_t row_begin, std::int64_t row_end, void*) {
  for_each(args, row_begin, row_end, [&](std::int64_t plane, std::int64_t row, std::int64_t column, std::int64_t to) {
    const Range rows = range_of(args.down, args.height, row);
    const Range columns = range_of(args.across, args.width, column);
    std::int64_t count = args.count_padding ? rows.counted * columns.counted : (rows.end - rows.begin) * (columns.end - columns.begin);
    if (args.divisor != 0) count = args.divisor;
    const bool empty = rows.begin >= rows.end || columns.begin >= columns.end;
    put(args.to, args.dtype, to, empty ? 0 : sum_of(args, plane, rows, columns) / static_cast<double>(count));
  });
}

void adaptive_pool(const PoolArgs& args, const PoolPlan&, std::int64_t row_begin, std::int64_t row_end, void*) {
  const auto range = [](std::int64_t i, std::int64_t size, std::int64_t out) {
    return Range{i * size / out, ((i + 1) * size + out - 1) / out, 0};
  };
  for_each(args, row_begin, row_end, [&](std::int64_t plane, std::int64_t row, std::int64_t column, std::int64_t to) {
    const Range rows = range(row, args.height, args.out_height);
    const Range columns = range(column, args.width, args.out_width);
    const auto count = static_cast<double>((rows.end - rows.begin) * (columns.end - columns.begin));
    put(args.to, args.dtype, to, sum_of(args, plane, rows, columns) / count);
  });
}

}  // namespace ipexrun::kernels::ref
