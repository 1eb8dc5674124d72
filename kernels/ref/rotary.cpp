// The truth of rotary: the formulas in doubles, one rounding to fp32 and, for bf16, one more.
#include "kernels/ref/rotary.h"

#include <cstring>

#include "kernels/ref/element.h"
#include "kernels/rotary_rows.h"

namespace ipexrun::kernels::ref {

void rotary(const RotaryArgs& args, bool heads_outside, std::int64_t row_begin, std::int64_t row_end) {
  const std::int64_t half = args.rotated / 2;
  const bool halves = args.pairs == RotaryPairs::kHalves;
  RotaryRows row(args, heads_outside, row_begin);
  for (std::int64_t index = row_begin; index < row_end; ++index, row.next()) {
    const std::int64_t from = row.from();
    const std::int64_t to = row.to();
    const std::int64_t table = row.table();
    for (std::int64_t i = 0; i < half; ++i) {
      const std::int64_t first = halves ? i : 2 * i;
      const std::int64_t second = halves ? i + half : 2 * i + 1;
      const double x = get(args.from, args.dtype, from + first);
      const double y = get(args.from, args.dtype, from + second);
      const double c = get(args.cos, args.table_dtype, table + i);
      const double s = get(args.sin, args.table_dtype, table + i) * (args.inverse ? -1 : 1);
      put(args.to, args.dtype, to + first, x * c - y * s);
      put(args.to, args.dtype, to + second, y * c + x * s);
    }
    const std::int64_t size = bytes_of(args.dtype);
    std::memmove(static_cast<char*>(args.to) + (to + args.rotated) * size,
                 static_cast<const char*>(args.from) + (from + args.rotated) * size,
                 static_cast<std::size_t>((args.depth - args.rotated) * size));
  }
}

}  // namespace ipexrun::kernels::ref
