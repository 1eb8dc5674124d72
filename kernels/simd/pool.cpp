// pool, a row of windows at a time; compiled once per instruction set, with IPEXRUN_KERNEL_ISA naming the namespace.
//
// Column q of a padded row (q = column + pad) lies at [q % stride][q / stride] of its row of scratch: what the windows of neighbouring
// outputs have at the same place is then neighbours too. Rows are laid out once and kept while a window may still reach them.
#include "kernels/simd/pool.h"

#include "kernels/dispatch.h"
#include "kernels/simd/element.h"
#include "kernels/simd/floats.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

using Vector = Floats::Vector;
constexpr int kLanes = Lanes::kCount;
constexpr std::int64_t kNoRow = -1;

std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
std::int64_t larger(std::int64_t a, std::int64_t b) { return a > b ? a : b; }

/// The first element of a window that is not before the first of the dimension.
std::int64_t first_of(std::int64_t start, std::int64_t dilation) {
  return start >= 0 ? start : start + (-start + dilation - 1) / dilation * dilation;
}

/// What a call keeps in its scratch.
struct Scratch {
  float* rows;
  std::int64_t* tags;
  std::int64_t* taps;
  std::int32_t* first;
  std::int32_t* column;
  float* result;

  Scratch(const PoolArgs& args, const PoolPlan& plan, void* memory, float padding)
      : rows(reinterpret_cast<float*>(static_cast<char*>(memory) + plan.rows)),
        tags(reinterpret_cast<std::int64_t*>(static_cast<char*>(memory) + plan.tags)),
        taps(reinterpret_cast<std::int64_t*>(static_cast<char*>(memory) + plan.taps)),
        first(reinterpret_cast<std::int32_t*>(static_cast<char*>(memory) + plan.first)),
        column(reinterpret_cast<std::int32_t*>(static_cast<char*>(memory) + plan.column)),
        result(reinterpret_cast<float*>(static_cast<char*>(memory) + plan.result)) {
    const PoolWindow& across = args.across;
    for (std::int64_t i = 0; i < plan.span * plan.row; ++i) rows[i] = padding;
    for (std::int64_t i = 0; i < plan.span; ++i) tags[i] = kNoRow;
    for (std::int64_t i = 0; i < across.size; ++i) {
      const std::int64_t q = i * across.dilation;
      taps[i] = q % across.stride * plan.pitch + q / across.stride;
    }
    for (std::int64_t i = 0; i < plan.columns; ++i) {
      const std::int64_t start = i * across.stride - across.pad;
      column[i] = static_cast<std::int32_t>(start);
      first[i] = static_cast<std::int32_t>(first_of(start, across.dilation));
    }
  }
};

/// Elements at even places of a row to one target, those at odd places to the other; nothing is written behind them.
void split_row(const float* from, std::int64_t n, float* even, float* odd) {
  for (std::int64_t i = 0; i < n; i += 2 * kLanes) {
    const std::int64_t rest = n - i;
    const std::int64_t second = rest - kLanes;
    Lanes::Vector a = rest >= kLanes ? Lanes::load(from + i) : Lanes::load_part(from + i, Lanes::part(rest * 4));
    Lanes::Vector b = second >= kLanes ? Lanes::load(from + i + kLanes)
                      : second > 0     ? Lanes::load_part(from + i + kLanes, Lanes::part(second * 4))
                                       : Lanes::zero();
    Lanes::split(a, b);
    if (second >= kLanes) {
      Lanes::store(even + i / 2, a);
      Lanes::store(odd + i / 2, b);
    } else {
      Lanes::store_part(even + i / 2, a, Lanes::part((rest + 1) / 2 * 4));
      Lanes::store_part(odd + i / 2, b, Lanes::part(rest / 2 * 4));
    }
  }
}

void split_row(const std::uint16_t* from, std::int64_t n, float* even, float* odd) {
  for (std::int64_t i = 0; i < n; i += 2 * kLanes) {
    const std::int64_t rest = n - i;
    if (rest >= 2 * kLanes) {
      const Lanes::Vector pairs = Lanes::load(from + i);
      Lanes::store(even + i / 2, Lanes::shift_left_16(pairs));
      Lanes::store(odd + i / 2, Lanes::upper_half(pairs));
    } else {
      const Lanes::Vector pairs = Lanes::load_part(from + i, Lanes::part(rest * 2));
      Lanes::store_part(even + i / 2, Lanes::shift_left_16(pairs), Lanes::part((rest + 1) / 2 * 4));
      Lanes::store_part(odd + i / 2, Lanes::upper_half(pairs), Lanes::part(rest / 2 * 4));
    }
  }
}

/// Sees to it that row `y` of `plane` lies in its row of scratch.
template <typename Element>
void laid_out(const PoolArgs& args, const PoolPlan& plan, const Scratch& scratch, std::int64_t plane, std::int64_t y) {
  const std::int64_t tag = plane * args.height + y;
  const std::int64_t slot = y % plan.span;
  float* to = scratch.rows + slot * plan.row;
  if (scratch.tags[slot] == tag) return;
  scratch.tags[slot] = tag;
  const Element* from = static_cast<const Element*>(args.from) + tag * args.width;
  const std::int64_t stride = args.across.stride;
  const auto phase = [&](std::int64_t p) { return to + (p + args.across.pad) % stride * plan.pitch + (p + args.across.pad) / stride; };
  if (stride == 1) {
    float* at = phase(0);
    for (std::int64_t i = 0; i < args.width; ++i) at[i] = as_f32(from[i]);
  } else if (stride == 2) {
    split_row(from, args.width, phase(0), phase(1));
  } else {
    for (std::int64_t p = 0; p < smaller(stride, args.width); ++p) {
      float* at = phase(p);
      for (std::int64_t i = p; i < args.width; i += stride) *at++ = as_f32(from[i]);
    }
  }
}

/// A row of the output from scratch, where it was written in whole vectors.
template <typename Element>
void put_row(const PoolArgs& args, const float* result, std::int64_t row) {
  Element* to = static_cast<Element*>(args.to) + row * args.out_width;
  for (std::int64_t i = 0; i < args.out_width; ++i) put(to + i, result[i]);
}

/// Rows of the input that the windows of one row of the output cover: begin, begin + step, ... below end.
struct Rows {
  std::int64_t begin;
  std::int64_t end;
  std::int64_t step;
};

/// N vectors of outputs from column x on: their comparisons wait for each other, so several chains run side by side.
template <int N>
[[gnu::always_inline]] inline void max_block(const PoolArgs& args, const PoolPlan& plan, const Scratch& scratch, const Rows& rows,
                                             std::int64_t x, std::int64_t* indices) {
  Vector largest[N];
  Vector at[N];
  Lanes::Vector column[N];
#pragma GCC unroll 2
  for (int n = 0; n < N; ++n) {
    const Lanes::Vector first = Lanes::load(scratch.first + x + n * kLanes);
    column[n] = Lanes::load(scratch.column + x + n * kLanes);
    largest[n] = Floats::all(-__builtin_inff());
    at[n] = Floats::of_bits(Lanes::add(first, Lanes::all(static_cast<std::int32_t>(rows.begin * args.width))));
  }
  std::int64_t slot = rows.begin % plan.span;
  for (std::int64_t y = rows.begin; y < rows.end; y += rows.step) {
    const float* from = scratch.rows + slot * plan.row + x;
    slot += rows.step;
    if (slot >= plan.span) slot -= plan.span;
    std::int64_t place = y * args.width;
    for (std::int64_t k = 0; k < args.across.size; ++k, place += args.across.dilation) {
#pragma GCC unroll 2
      for (int n = 0; n < N; ++n) {
        const Vector value = Floats::of_bits(Lanes::load(from + scratch.taps[k] + n * kLanes));
        const Floats::Mask better = Floats::above_or_nan(value, largest[n]);
        largest[n] = Floats::pick(better, value, largest[n]);
        at[n] = Floats::pick(better, Floats::of_bits(Lanes::add(column[n], Lanes::all(static_cast<std::int32_t>(place)))), at[n]);
      }
    }
  }
#pragma GCC unroll 2
  for (int n = 0; n < N; ++n) {
    const std::int64_t from = x + n * kLanes;
    Lanes::store(scratch.result + from, Floats::bits_of(largest[n]));
    if (from + kLanes <= args.out_width) {
      Lanes::store_as_int64(indices + from, Floats::bits_of(at[n]));
    } else {
      std::int32_t rest[kLanes];
      Lanes::store(rest, Floats::bits_of(at[n]));
      for (std::int64_t i = 0; from + i < args.out_width; ++i) indices[from + i] = rest[i];
    }
  }
}

template <typename Element>
void max_rows(const PoolArgs& args, const PoolPlan& plan, std::int64_t row_begin, std::int64_t row_end, void* memory) {
  const Scratch scratch(args, plan, memory, -__builtin_inff());
  const PoolWindow& down = args.down;
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    const std::int64_t start = row % args.out_height * down.stride - down.pad;
    const Rows rows{first_of(start, down.dilation), smaller(start + (down.size - 1) * down.dilation + 1, args.height), down.dilation};
    for (std::int64_t y = rows.begin; y < rows.end; y += rows.step) laid_out<Element>(args, plan, scratch, row / args.out_height, y);
    std::int64_t* indices = args.indices + row * args.out_width;
    std::int64_t x = 0;
    for (; x + kLanes < args.out_width; x += 2 * kLanes) max_block<2>(args, plan, scratch, rows, x, indices);
    if (x < args.out_width) max_block<1>(args, plan, scratch, rows, x, indices);
    put_row<Element>(args, scratch.result, row);
  }
}

/// By how many elements the sums along one dimension are divided; at least 1, since a window of nothing has the sum 0.
std::int64_t counted(const PoolWindow& window, std::int64_t size, std::int64_t i, bool count_padding) {
  const std::int64_t start = i * window.stride - window.pad;
  const std::int64_t end = smaller(start + window.size, size + window.pad);
  return larger(count_padding ? end - start : smaller(end, size) - larger(start, 0), 1);
}

template <typename Element>
void average_rows(const PoolArgs& args, const PoolPlan& plan, std::int64_t row_begin, std::int64_t row_end, void* memory) {
  const Scratch scratch(args, plan, memory, 0.0f);
  const PoolWindow& down = args.down;
  float* widths = reinterpret_cast<float*>(scratch.first);  // of no use here as what it is
  for (std::int64_t x = 0; x < plan.columns; ++x) {
    widths[x] = args.divisor != 0 ? 1.0f : static_cast<float>(counted(args.across, args.width, x, args.count_padding));
  }
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    const std::int64_t plane = row / args.out_height;
    const std::int64_t out_row = row % args.out_height;
    const std::int64_t start = out_row * down.stride - down.pad;
    const std::int64_t begin = larger(start, 0);
    const std::int64_t end = smaller(start + down.size, args.height);
    for (std::int64_t y = begin; y < end; ++y) laid_out<Element>(args, plan, scratch, plane, y);
    const Vector height =
        Floats::all(static_cast<float>(args.divisor != 0 ? args.divisor : counted(down, args.height, out_row, args.count_padding)));
    const std::int64_t begin_slot = begin % plan.span;
    for (std::int64_t x = 0; x < args.out_width; x += 2 * kLanes) {
      Vector sums[2] = {Floats::all(0.0f), Floats::all(0.0f)};
      std::int64_t slot = begin_slot;
      for (std::int64_t y = begin; y < end; ++y) {
        const float* from = scratch.rows + slot * plan.row + x;
        if (++slot == plan.span) slot = 0;
        for (std::int64_t k = 0; k < args.across.size; ++k) {
          sums[0] = Floats::add(sums[0], Floats::of_bits(Lanes::load(from + scratch.taps[k])));
          sums[1] = Floats::add(sums[1], Floats::of_bits(Lanes::load(from + scratch.taps[k] + kLanes)));
        }
      }
#pragma GCC unroll 2
      for (int n = 0; n < 2; ++n) {
        const Vector count = Floats::multiply(height, Floats::of_bits(Lanes::load(widths + x + n * kLanes)));
        Lanes::store(scratch.result + x + n * kLanes, Floats::bits_of(Floats::quotient(sums[n], count)));
      }
    }
    put_row<Element>(args, scratch.result, row);
  }
}

template <typename Element>
void adaptive_rows(const PoolArgs& args, const PoolPlan& plan, std::int64_t row_begin, std::int64_t row_end, void* memory) {
  float* sums = reinterpret_cast<float*>(static_cast<char*>(memory) + plan.rows);
  std::int32_t* left = reinterpret_cast<std::int32_t*>(static_cast<char*>(memory) + plan.first);
  std::int32_t* right = reinterpret_cast<std::int32_t*>(static_cast<char*>(memory) + plan.column);
  for (std::int64_t x = 0; x < args.out_width; ++x) {
    left[x] = static_cast<std::int32_t>(x * args.width / args.out_width);
    right[x] = static_cast<std::int32_t>(((x + 1) * args.width + args.out_width - 1) / args.out_width);
  }
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    const std::int64_t plane = row / args.out_height;
    const std::int64_t out_row = row % args.out_height;
    const std::int64_t begin = out_row * args.height / args.out_height;
    const std::int64_t end = ((out_row + 1) * args.height + args.out_height - 1) / args.out_height;
    const Element* from = static_cast<const Element*>(args.from) + (plane * args.height + begin) * args.width;
    for (std::int64_t x = 0; x < args.width; ++x) sums[x] = as_f32(from[x]);
    for (std::int64_t y = begin + 1; y < end; ++y) {
      from += args.width;
      for (std::int64_t x = 0; x < args.width; ++x) sums[x] += as_f32(from[x]);
    }
    Element* to = static_cast<Element*>(args.to) + row * args.out_width;
    for (std::int64_t x = 0; x < args.out_width; ++x) {
      float sum = sums[left[x]];
      for (std::int64_t i = left[x] + 1; i < right[x]; ++i) sum += sums[i];
      put(to + x, sum / static_cast<float>((end - begin) * (right[x] - left[x])));
    }
  }
}

}  // namespace

void max_pool(const PoolArgs& args, const PoolPlan& plan, std::int64_t row_begin, std::int64_t row_end, void* scratch) {
  (args.dtype == DType::kF32 ? max_rows<float> : max_rows<std::uint16_t>)(args, plan, row_begin, row_end, scratch);
}

void average_pool(const PoolArgs& args, const PoolPlan& plan, std::int64_t row_begin, std::int64_t row_end, void* scratch) {
  (args.dtype == DType::kF32 ? average_rows<float> : average_rows<std::uint16_t>)(args, plan, row_begin, row_end, scratch);
}

void adaptive_pool(const PoolArgs& args, const PoolPlan& plan, std::int64_t row_begin, std::int64_t row_end, void* scratch) {
  (args.dtype == DType::kF32 ? adaptive_rows<float> : adaptive_rows<std::uint16_t>)(args, plan, row_begin, row_end, scratch);
}

}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
