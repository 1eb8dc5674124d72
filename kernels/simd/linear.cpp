// linear on vector units; compiled once per instruction set, with IPEXRUN_KERNEL_ISA naming the namespace.
//
// Loops, outermost first: blocks of rows (their A, converted once, stays in L2), panels, blocks of K where L1 is large (their B stays in
// it), groups of Isa::kRows rows. A group's sums live in registers for a block of K; each line of B is read once a group and multiplied by
// broadcast pairs of A. Rows that are one group alone take the whole of K, and several panels at once.
#include "kernels/simd/linear.h"

#include <immintrin.h>

#include <optional>

#include "kernels/bf16.h"
#include "kernels/caches.h"
#include "kernels/packed.h"
#include "kernels/simd/epilogue.h"
#include "kernels/simd/groups_bf16.h"
#include "kernels/simd/load_bias.h"
#include "kernels/simd/windows.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

constexpr std::int64_t kStepsAtOnce = 8;  ///< B of so many steps (16 KiB a panel) stays in a large L1 while all rows are multiplied by it

void store_pair(std::uint16_t* to, Floats::Vector first, Floats::Vector second) {
#if defined(IPEXRUN_KERNEL_ISA_AVX512_BF16)
  Isa::store_bf16(to, first, second);
#else
  InOrderBf16::store(to, first);
  InOrderBf16::store(to + Lanes::kCount, second);
#endif
}

/// Rows of sums to C in bf16, all columns of which are there, with a sum in bf16, relu behind it, one of them or neither: one pass.
template <bool kSum, bool kRelu>
void put_rows(const LinearArgs& args, std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns, const float* from) {
  const Floats::Vector zero = Floats::all(0.0f);
  for (std::int64_t r = 0; r < rows; ++r, from += columns) {
    std::uint16_t* to = static_cast<std::uint16_t*>(args.c) + (row + r) * args.ldc + column;
    const std::uint16_t* other =
        static_cast<const std::uint16_t*>(args.epilogue.other) + (kSum ? (row + r) * args.epilogue.ld_other + column : 0);
    for (std::int64_t n = 0; n < columns; n += 2 * Lanes::kCount) {
      Floats::Vector first = InOrderF32::load(from + n);
      Floats::Vector second = InOrderF32::load(from + n + Lanes::kCount);
      if constexpr (kSum) {
        first = Floats::add(first, InOrderBf16::load(other + n));
        second = Floats::add(second, InOrderBf16::load(other + n + Lanes::kCount));
      }
      if constexpr (kRelu) {
        first = Floats::at_least(zero, first);
        second = Floats::at_least(zero, second);
      }
      store_pair(to + n, first, second);
    }
  }
}

/// False where put_rows() is not made for it.
bool put(const LinearArgs& args, std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns, const float* from) {
  const Epilogue& e = args.epilogue;
  const bool relu = e.unary == Unary::kRelu;
  const bool sum = e.binary == Binary::kAdd;
  if (args.c_dtype != DType::kBf16 || column + columns > args.n || (e.unary != Unary::kNone && !relu)) return false;
  if (e.binary != Binary::kNone && !(sum && e.other_dtype == DType::kBf16 && (e.binary_first || !relu))) return false;
  const auto run = sum ? (relu ? put_rows<true, true> : put_rows<true, false>) : (relu ? put_rows<false, true> : put_rows<false, false>);
  run(args, row, rows, column, columns, from);
  return true;
}

/// What a group's last sums will meet, fetched while they are computed.
void fetch_rows(const LinearArgs& args, std::int64_t row, std::int64_t rows, std::int64_t column) {
  const Epilogue& e = args.epilogue;
  const char* to = static_cast<const char*>(args.c) + (row * args.ldc + column) * bytes_of(args.c_dtype);
  for (std::int64_t r = 0; r < rows; ++r) __builtin_prefetch(to + r * args.ldc * bytes_of(args.c_dtype), 1);
  if (e.binary == Binary::kNone || e.other == args.c) return;
  const char* other = static_cast<const char*>(e.other) + (row * e.ld_other + column) * bytes_of(e.other_dtype);
  for (std::int64_t r = 0; r < rows; ++r) __builtin_prefetch(other + r * e.ld_other * bytes_of(e.other_dtype));
}

void write_rows(const LinearArgs& args, std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns, float* from) {
  if (put(args, row, rows, column, columns, from)) return;
  const std::int64_t valid = args.n - column < columns ? args.n - column : columns;
  if (args.epilogue.any()) finish_rows(args.epilogue, row, rows, column, valid, from, columns);
  for (std::int64_t r = 0; r < rows; ++r, from += columns) {
    const std::int64_t at = (row + r) * args.ldc + column;
    if (args.c_dtype == DType::kF32) {
      __builtin_memcpy(static_cast<float*>(args.c) + at, from, static_cast<std::size_t>(valid) * 4);
    } else {
      std::uint16_t* to = static_cast<std::uint16_t*>(args.c) + at;
      std::int64_t n = 0;
      for (; n + Lanes::kCount <= valid; n += Lanes::kCount) InOrderBf16::store(to + n, InOrderF32::load(from + n));
      if (n < valid) InOrderBf16::store_part(to + n, InOrderF32::load_part(from + n, valid - n), valid - n);
    }
  }
}

/// Elements from a converted row of A to the next: a line more than they need, so that the rows of a group do not meet in one set of L1.
std::int64_t row_stride_of(const LinearArgs& args) { return steps_of(args.k) * kStepK + 64 / static_cast<std::int64_t>(sizeof(Isa::A)); }

std::int64_t row_bytes(const LinearArgs& args) { return row_stride_of(args) * static_cast<std::int64_t>(sizeof(Isa::A)); }

/// A is multiplied where it lies: it needs no rounding and no zeros behind, and its rows do not meet in one set of L1.
bool reads_a(const LinearArgs& args) {
  const bool as_it_is = sizeof(Isa::A) == 2 && args.a_dtype == DType::kBf16 && args.windows == nullptr;
  return as_it_is && args.k % kStepK == 0 && args.lda * 2 % 4096 != 0;
}

/// Rows of A that are copied at a time: half of L2.
std::int64_t row_block_of(const LinearArgs& args, const LinearBlock& block) {
  const std::int64_t rows = block.row_end - block.row_begin;
  std::int64_t most = block.l2_bytes / 2 / row_bytes(args) / Isa::kRows * Isa::kRows;
  if (most < Isa::kRows) most = Isa::kRows;
  return rows < most ? rows : most;
}

/// `count` elements of `size` bytes, or zeros: windows have many short pieces, for which a call would take longer than the copy.
void copy_piece(const char* from, std::int64_t count, char* to, std::int64_t size) {
  constexpr std::int64_t kVectorBytes = Isa::kWidth * 4;
  const std::int64_t bytes = count * size;
  std::int64_t i = 0;
  if (from == nullptr) {
    __builtin_memset(to, 0, static_cast<std::size_t>(bytes));
    return;
  }
  for (; i + kVectorBytes <= bytes; i += kVectorBytes)
    Isa::store(reinterpret_cast<float*>(to + i), Isa::load(reinterpret_cast<const float*>(from + i)));
  if (i < bytes) {
    const Lanes::Part part = Lanes::part(bytes - i);
    Lanes::store_part(to + i, Lanes::load_part(from + i, part), part);
  }
}

/// The lines of a window, one after the other: what is asked for each piece would take longer than to copy short ones.
void copy_lines(const ImageWindows& w, const char* from, char* to, std::int64_t size) {
  constexpr std::int64_t kVectorBytes = Isa::kWidth * 4;
  const std::int64_t bytes = w.kernel[1] * w.channels * size;
  const std::int64_t whole = bytes / kVectorBytes * kVectorBytes;
  const Lanes::Part part = Lanes::part(bytes - whole);
  for (std::int64_t line = 0; line < w.kernel[0]; ++line, from += w.dilation[0] * w.row_stride * size, to += bytes) {
    for (std::int64_t i = 0; i < whole; i += kVectorBytes)
      Isa::store(reinterpret_cast<float*>(to + i), Isa::load(reinterpret_cast<const float*>(from + i)));
    if (whole < bytes) Lanes::store_part(to + whole, Lanes::load_part(from + whole, part), part);
  }
}

std::int64_t window_bytes(const LinearArgs& args) { return args.windows == nullptr ? 0 : ceil_div(args.k * 4, 64) * 64; }

/// Rows [row, row + rows) of A, converted. `line` has room for a row of windows as it lies in the images.
void convert_rows(const LinearArgs& args, std::int64_t row, std::int64_t rows, Isa::A* to, char* line) {
  const std::int64_t size = args.a_dtype == DType::kF32 ? 4 : 2;
  const std::int64_t padded = steps_of(args.k) * kStepK;
  const std::int64_t stride = row_stride_of(args);
  const char* from = static_cast<const char*>(args.a);
  std::optional<WindowAt> place;
  if (args.windows != nullptr) place.emplace(*args.windows, row);
  for (std::int64_t r = 0; r < rows; ++r, to += stride) {
    if (!place) {
      Isa::convert_row(from + (row + r) * args.lda * size, args.a_dtype, args.k, to);
      continue;
    }
    const bool as_it_is = sizeof(Isa::A) == 2 && size == 2;
    char* piece_to = as_it_is ? reinterpret_cast<char*>(to) : line;
    std::int64_t first = 0;
    if (has_lines(*args.windows) && lines_of_window(*args.windows, *place, &first)) {
      copy_lines(*args.windows, from + first * size, piece_to, size);
    } else {
      for_pieces_of_window(*args.windows, *place, [&](std::int64_t at, std::int64_t count, std::int64_t k) {
        copy_piece(at < 0 ? nullptr : from + at * size, count, piece_to + k * size, size);
      });
    }
    place->next(*args.windows);
    if (as_it_is) {
      for (std::int64_t k = args.k; k < padded; ++k) to[k] = 0;
    } else {
      Isa::convert_row(line, args.a_dtype, args.k, to);
    }
  }
}

std::int64_t sum_bytes(std::int64_t rows) { return rows * kColumnsAtOnce * static_cast<std::int64_t>(sizeof(float)); }

/// Rows of A as they are multiplied.
struct RowsOfA {
  const Isa::A* first;
  std::int64_t stride;
};

/// Lines of the next panel that a step fetches, so that all of it is in L2 once `passes` over this one are.
std::int64_t lines_of(std::int64_t passes) { return ceil_div(kStepElements * 2 / 64, passes); }

/// Columns of a group for rows [row, row + rows) of A. `sums` has a line a row. `ahead`: what the columns after these read first, null:
/// nothing.
void run_columns(const LinearArgs& args, const RowsOfA& a, std::int64_t row, std::int64_t rows, const std::uint16_t* b, std::int64_t column,
                 std::int64_t l1_bytes, const char* ahead, float* sums) {
  const std::int64_t steps = steps_of(args.k);
  // With 32 KiB, sums that stay in registers for all of K were 1 to 3% faster (AVX512-BF16, AVX-512, AVX2; Zen 4).
  const std::int64_t steps_at_once = l1_bytes >= kUsualL1Bytes ? kStepsAtOnce : steps;
  const std::int64_t at_once = ceil_div(rows, ceil_div(rows, Isa::kRows));  // groups of about the same height
  const std::int64_t lines = ahead == nullptr ? 0 : lines_of(ceil_div(rows, at_once) * (2 / Isa::kTilesAtOnce));
  alignas(64) float bias[kColumnsAtOnce];
  load_bias(args, column, kColumnsAtOnce, bias);
  for (std::int64_t first = 0; first < steps; first += steps_at_once) {
    const std::int64_t here = steps - first < steps_at_once ? steps - first : steps_at_once;
    const bool last = first + here == steps;
    for (std::int64_t r = 0; r < rows; r += at_once, ahead += here * lines * 64) {
      const std::int64_t height = rows - r < at_once ? rows - r : at_once;
      // What is finished at once needs no place of its own.
      float* line = first == 0 && last ? sums : sums + r * kColumnsAtOnce;
      const Multiply run = r == 0 ? ByRows::kFirst[height - 1] : ByRows::kOne[height - 1];
      if (last) fetch_rows(args, row + r, height, column);
      run(a.first + r * a.stride + first * kStepK, a.stride, b + first * kStepElements, 0, here, first == 0 ? bias : line,
          first == 0 ? 0 : kColumnsAtOnce, line, ahead, lines);
      if (last) write_rows(args, row + r, height, column, kColumnsAtOnce, line);  // while it is in L1
    }
  }
}

/// So few rows that they are one group: each line of B is read once, by several groups of columns in turn. Gives the first panel that is
/// left.
std::int64_t run_alone(const LinearArgs& args, const LinearBlock& block, const RowsOfA& a, std::int64_t row, std::int64_t rows,
                       float* sums) {
  const auto* packed = static_cast<const std::uint16_t*>(args.packed_b);
  const std::int64_t steps = steps_of(args.k);
  const std::int64_t groups = groups_for(static_cast<int>(rows));
  const std::int64_t columns = groups * kPanelColumns;
  alignas(64) float bias[4 * kPanelColumns];
  std::int64_t panel = block.panel_begin;
  for (; panel + groups <= block.panel_end; panel += groups) {
    load_bias(args, panel * kPanelColumns, columns, bias);
    ByRows::kAlone[rows - 1](a.first, a.stride, packed + panel * steps * kStepElements, steps * kStepElements, steps, bias, 0, sums,
                             nullptr, 0);
    write_rows(args, row, rows, panel * kPanelColumns, columns, sums);
  }
  return panel;
}

}  // namespace

std::size_t linear_scratch_bytes(const LinearArgs& args, const LinearBlock& block) {
  const std::int64_t rows = row_block_of(args, block);
  return static_cast<std::size_t>(window_bytes(args) + rows * row_bytes(args) + sum_bytes(rows < Isa::kRows ? 4 * Isa::kRows : rows));
}

void linear(const LinearArgs& args, const LinearBlock& block, void* scratch) {
  auto* line = static_cast<char*>(scratch);
  auto* a = reinterpret_cast<Isa::A*>(line + window_bytes(args));
  const auto* packed = static_cast<const std::uint16_t*>(args.packed_b);
  const std::int64_t steps = steps_of(args.k);
  const std::int64_t row_block = row_block_of(args, block);
  auto* sums = reinterpret_cast<float*>(reinterpret_cast<char*>(a) + row_block * row_bytes(args));
  for (std::int64_t row = block.row_begin; row < block.row_end; row += row_block) {
    const std::int64_t rows = block.row_end - row < row_block ? block.row_end - row : row_block;
    RowsOfA rows_of_a{a, row_stride_of(args)};
    if (reads_a(args)) {
      rows_of_a = {reinterpret_cast<const Isa::A*>(static_cast<const char*>(args.a) + row * args.lda * 2), args.lda};
    } else if (!block.same_rows || rows < block.row_end - block.row_begin) {
      convert_rows(args, row, rows, a, line);
    }
    std::int64_t panel = block.panel_begin;
    if (rows <= Isa::kRows && Isa::kTilesAtOnce == 2) panel = run_alone(args, block, rows_of_a, row, rows, sums);
    for (; panel < block.panel_end; ++panel) {
      constexpr int kHalves = 2 / Isa::kTilesAtOnce;
      const std::uint16_t* b = packed + panel * steps * kStepElements;
      for (int half = 0; half < kHalves; ++half) {
        const std::int64_t column = panel * kPanelColumns + half * kTileColumns;
        if (column >= args.n) break;
        const std::uint16_t* next = panel + 1 < block.panel_end ? b + steps * kStepElements * (kHalves + half) / kHalves : nullptr;
        run_columns(args, rows_of_a, row, rows, b + half * kTileElements, column, block.l1_bytes, reinterpret_cast<const char*>(next),
                    sums);
      }
    }
  }
}

}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
