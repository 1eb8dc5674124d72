// linear_f32 on vector units; compiled for avx2 and avx512.
//
// Loops, outermost first: blocks of rows (their A stays in L2, or in L3 where L2 has room for so few of them that B would be read again and
// again), panels, blocks of K that stay in L1 or L2 for all groups, groups of rows as equal as they come, parts of a panel. The sums of a
// group and a part live in registers for kBlockK rows of K and are added up in C. The next panel is fetched into L2 meanwhile. A is read
// where it lies; if its rows would meet in one set of L1, or are windows, or fp16, they are copied as fp32 in blocks of kBlockK columns.
// fp16: where there are few rows, a pair of rows of K and its columns are widened as they lie and multiplied by pairs of A, so that sums
// are of even and odd rows, added up at the end; else a panel is widened into fp32 rows once for all groups of a block.
#include "kernels/simd/linear_f32.h"

#include <immintrin.h>

#include "kernels/caches.h"
#include "kernels/simd/epilogue.h"
#include "kernels/simd/groups_f32.h"
#include "kernels/simd/windows.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

constexpr std::int64_t kSameSetsBytes = 4096;  // rows of a group that are a multiple of so many bytes apart lie in one set of L1
constexpr std::int64_t kGroupsInL1 = 3;        // so many want a block of K in L1
constexpr std::int64_t kDepthInL2 = 1024;      // 128 KiB of a panel
/// Of a block, whatever L2 holds: each number of B is multiplied so often once it was read from L3 or memory (3072 x 768, 128 rows, L2 of
/// 512 KiB: 8.0 ms in blocks of 16 rows, 7.2 of 96, 6.8 of 128 and more); as far as A takes no more memory than the second one.
constexpr std::int64_t kLeastRows = 128;
constexpr std::int64_t kMostBytesForThem = 4 << 20;

/// Rows of K for all groups in turn. With 32 KiB of L1 those that fill it were 1 to 3% slower than longer ones, whose sums are added up
/// less often (AVX-512, AVX2; Zen 4).
std::int64_t depth_at_once(std::int64_t k, std::int64_t groups, std::int64_t l1_bytes) {
  if (groups == 1) return k;
  if (l1_bytes < kUsualL1Bytes) return kDepthInL2;
  return groups >= kGroupsInL1 ? kBlockK : k;
}

/// R rows x that part of P panels of fp16. `k` is a multiple of a step.
template <int R, int P>
void multiply_pairs(const Group& group) {
  constexpr int kPart = 2 * kVectors;  // vectors of pairs
  Vector sums[R][P * kPart];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < P * kPart; ++v) sums[r][v] = zero();
  }
  const char* b = static_cast<const char*>(group.b);
  const std::int64_t next = group.next;
  const float* a = group.a;
  for (std::int64_t k = 0; k < group.k; k += kStepK, b += kStepBytes) {
    const char* line = b;
    for (const float* end = a + kStepK; a < end; a += 2, line += 64) {
      for (int p = 0; p < P; ++p) {
        __builtin_prefetch(line + p * next + kPrefetchBytes);
        if (kColumns == kPanelColumns) __builtin_prefetch(line + p * next + kPrefetchBytes + kTileElements * 2);
      }
      Vector pairs[R];
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) pairs[r] = pair(a + r * kRowStride);
#pragma GCC unroll 16
      for (int v = 0; v < P * kPart; ++v) {
        // A tile has 64 / (2 * kWidth) vectors of pairs.
        constexpr int kOfTile = 32 / kWidth;
        const int in = v % kPart;
        const char* at = line + v / kPart * next + in / kOfTile * kTileElements * 2 + in % kOfTile * kWidth * 2;
        const Vector operand = widened(reinterpret_cast<const std::uint16_t*>(at));
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) sums[r][v] = fma(pairs[r], operand, sums[r][v]);
      }
    }
    if ((k + kStepK) % kBlockK == 0) a += group.a_block - kBlockK;
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < P * kPart; v += 2) {
      const std::int64_t column = v / kPart * kPanelColumns + v % kPart / 2 * kWidth;
      store(group.out + r * group.stride + column, add(load(group.start + column), add_neighbours(sums[r][v], sums[r][v + 1])));
    }
  }
}

// By rows - 1.
#if defined(IPEXRUN_KERNEL_ISA_AVX512)
constexpr Choice kPairs[] = {{multiply_pairs<1, 2>, 2}, {multiply_pairs<2, 2>, 2}, {multiply_pairs<3, 2>, 2},
                             {multiply_pairs<4, 1>, 1}, {multiply_pairs<5, 1>, 1}, {multiply_pairs<6, 1>, 1}};
constexpr Choice kPairsOne[] = {{multiply_pairs<1, 1>, 1}, {multiply_pairs<2, 1>, 1}, {multiply_pairs<3, 1>, 1}};
#else
constexpr Choice kPairs[] = {{multiply_pairs<1, 2>, 2}, {multiply_pairs<2, 1>, 1}, {multiply_pairs<3, 1>, 1}};
constexpr Choice kPairsOne[] = {{multiply_pairs<1, 1>, 1}};
#endif
static_assert(sizeof(kPairs) / sizeof(kPairs[0]) == kPairRows);

/// A is multiplied where it lies: fp32 by rows, which do not all meet in one set of L1.
bool reads_a(const LinearF32Args& args) { return !args.half && args.windows == nullptr && args.lda * 4 % kSameSetsBytes != 0; }

/// What multiplies `rows` rows by up to `panels` panels.
Choice choice_of(bool pairs, std::int64_t rows, std::int64_t panels) {
  const Choice many = pairs ? kPairs[rows - 1] : kMultiply[rows - 1];
  if (many.panels <= panels) return many;
  return pairs ? kPairsOne[rows - 1] : kMultiplyOne[rows - 1];
}

struct Plan {
  std::int64_t k;  // rows of K that are multiplied: for fp16 whole steps
  std::int64_t k_blocks;
  std::int64_t row_block;
  bool reads_a;  // where it lies
  bool pairs;
  std::int64_t a_bytes;
  std::int64_t wide_bytes;  // of a panel widened to fp32
  std::int64_t out_bytes;   // sums of a block of rows and a panel
};

Plan plan_of(const LinearF32Args& args, const LinearBlock& block) {
  Plan plan{};
  const std::int64_t rows = block.row_end - block.row_begin;
  plan.k = args.half ? steps_of(args.k) * kStepK : args.k;
  plan.k_blocks = ceil_div(plan.k, kBlockK);
  const std::int64_t row_bytes = plan.k_blocks * kRowStride * 4;
  std::int64_t most = block.l2_bytes / 2 / row_bytes / kRows * kRows;
  std::int64_t least = kMostBytesForThem / row_bytes;
  if (least > kLeastRows) least = kLeastRows;
  if (most < least) most = least / kRows * kRows;
  if (most < kRows) most = kRows;
  plan.row_block = rows < most ? rows : ceil_div(rows, ceil_div(rows, most));
  plan.pairs = args.half && args.m <= kPairRows;  // of all rows: sums are in one order, whoever computes which
  plan.reads_a = reads_a(args);
  plan.a_bytes = plan.reads_a ? 0 : ceil_div(plan.row_block * row_bytes, 64) * 64;
  plan.out_bytes = (plan.row_block > kRows ? plan.row_block : kRows) * kPanelColumns * 4;  // also enough for few rows of several panels
  plan.wide_bytes = args.half && !plan.pairs ? plan.k * kPanelColumns * 4 : 0;
  return plan;
}

/// `count` numbers to column k of the row that begins at `to`, whose blocks of K are `block` apart.
inline void put(const float* from, std::int64_t count, float* to, std::int64_t k, std::int64_t block) {
  while (count > 0) {
    const std::int64_t at = k % kBlockK;
    const std::int64_t here = count < kBlockK - at ? count : kBlockK - at;
    float* there = to + k / kBlockK * block + at;
    std::int64_t i = 0;
    if (from == nullptr) {
      for (; i + kWidth <= here; i += kWidth) store(there + i, zero());
      for (; i < here; ++i) there[i] = 0;
    } else {
      for (; i + kWidth <= here; i += kWidth) store(there + i, load(from + i));
      if (i < here) {  // pieces of windows are short: a call or a loop would take longer than the copy
        const Lanes::Part part = Lanes::part((here - i) * 4);
        Lanes::store_part(there + i, Lanes::load_part(from + i, part), part);
      }
      from += here;
    }
    k += here;
    count -= here;
  }
}

/// copy_rows() of windows.
void copy_windows(const LinearF32Args& args, std::int64_t row, std::int64_t rows, float* to) {
  const std::int64_t block = rows * kRowStride;
  const float* images = static_cast<const float*>(args.a);
  const ImageWindows& w = *args.windows;
  const bool lines = has_lines(w) && args.k <= kBlockK;
  const std::int64_t line_count = w.kernel[1] * w.channels;
  const std::int64_t whole = line_count / kWidth * kWidth;
  const Lanes::Part part = Lanes::part((line_count - whole) * 4);
  WindowAt at(w, row);
  for (std::int64_t r = 0; r < rows; ++r, to += kRowStride, at.next(w)) {
    std::int64_t first = 0;
    if (lines && lines_of_window(w, at, &first)) {  // short ones: what is asked for each piece would take longer than the copy
      const float* from = images + first;
      float* there = to;
      for (std::int64_t line = 0; line < w.kernel[0]; ++line, from += w.dilation[0] * w.row_stride, there += line_count) {
        for (std::int64_t i = 0; i < whole; i += kWidth) store(there + i, load(from + i));
        if (whole < line_count) Lanes::store_part(there + whole, Lanes::load_part(from + whole, part), part);
      }
      continue;
    }
    for_pieces_of_window(w, at, [&](std::int64_t from, std::int64_t count, std::int64_t k) {
      put(from < 0 ? nullptr : images + from, count, to, k, block);
    });
  }
}

/// Rows [row, row + rows) of A as fp32, blocks of K one after the other, zeros behind K as far as `plan.k`. One row after the other: what
/// lies behind in memory is on its way then.
void copy_rows(const LinearF32Args& args, const Plan& plan, std::int64_t row, std::int64_t rows, float* to) {
  if (args.windows != nullptr) return copy_windows(args, row, rows, to);
  const std::int64_t block = rows * kRowStride;
  for (std::int64_t r = 0; r < rows; ++r, to += kRowStride) {
    const std::int64_t at = (row + r) * args.lda;
    if (!args.half) {
      put(static_cast<const float*>(args.a) + at, args.k, to, 0, block);
      continue;
    }
    const auto* from = static_cast<const std::uint16_t*>(args.a) + at;
    for (std::int64_t first = 0; first < plan.k; first += kBlockK) {
      const std::int64_t depth = args.k - first < kBlockK ? args.k - first : kBlockK;
      const std::int64_t padded = plan.k - first < kBlockK ? plan.k - first : kBlockK;
      float* there = to + first / kBlockK * block;
      std::int64_t k = 0;
      for (; k + kWidth <= depth; k += kWidth) store(there + k, widened(from + first + k));
      if (k < padded) {
        std::uint16_t part[kStepK] = {};
        __builtin_memcpy(part, from + first + k, static_cast<std::size_t>(depth - k) * 2);
        for (std::int64_t i = 0; k < padded; k += kWidth, i += kWidth) store(there + k, widened(part + i));
      }
    }
  }
}

/// Bias of `panels` panels as fp32, zeros where there is none.
void load_bias(const LinearF32Args& args, std::int64_t panel, std::int64_t panels, float* to) {
  const std::int64_t column = panel * kPanelColumns;
  const std::int64_t count = panels * kPanelColumns;
  std::int64_t valid = args.n - column < count ? args.n - column : count;
  if (args.bias == nullptr) valid = 0;
  __builtin_memset(to, 0, static_cast<std::size_t>(count) * 4);
  if (valid == 0) return;
  if (!args.half) {
    __builtin_memcpy(to, static_cast<const float*>(args.bias) + column, static_cast<std::size_t>(valid) * 4);
    return;
  }
  std::uint16_t part[kPanelsMost * kPanelColumns] = {};
  __builtin_memcpy(part, static_cast<const std::uint16_t*>(args.bias) + column, static_cast<std::size_t>(valid) * 2);
  for (std::int64_t n = 0; n < count; n += kWidth) store(to + n, widened(part + n));
}

/// `rows` rows of `columns` sums to C.
void write_rows(const LinearF32Args& args, std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns,
                const float* from) {
  const std::int64_t valid = args.n - column < columns ? args.n - column : columns;
  for (std::int64_t r = 0; r < rows; ++r, from += columns) {
    const std::int64_t at = (row + r) * args.ldc + column;
    if (!args.half) {
      float* to = static_cast<float*>(args.c) + at;
      std::int64_t n = 0;
      for (; n + kWidth <= valid; n += kWidth) store(to + n, load(from + n));
      for (; n < valid; ++n) to[n] = from[n];
      continue;
    }
    auto* to = static_cast<std::uint16_t*>(args.c) + at;
    std::int64_t n = 0;
    for (; n + kWidth <= valid; n += kWidth) store_half(to + n, load(from + n));
    if (n < valid) {
      std::uint16_t part[kWidth];
      store_half(part, load(from + n));
      __builtin_memcpy(to + n, part, static_cast<std::size_t>(valid - n) * 2);
    }
  }
}

void widen_panel(const char* panel, std::int64_t k, float* to) {
  for (std::int64_t first = 0; first < k; first += kStepK) {
    for (std::int64_t tile = 0; tile < 2; ++tile, panel += kTileElements * 2) {
      float* at = to + first * kPanelColumns + tile * kTileColumns;
      for (std::int64_t pair_of = 0; pair_of < kStepK / 2; ++pair_of, at += 2 * kPanelColumns)
        widen_line(reinterpret_cast<const std::uint16_t*>(panel + pair_of * 64), at, at + kPanelColumns);
    }
  }
}

}  // namespace

std::size_t linear_f32_scratch_bytes(const LinearF32Args& args, const LinearBlock& block) {
  const Plan plan = plan_of(args, block);
  return static_cast<std::size_t>(plan.a_bytes + plan.wide_bytes + plan.out_bytes);
}

void linear_f32(const LinearF32Args& args, const LinearBlock& block, void* scratch) {
  const Plan plan = plan_of(args, block);
  auto* a = static_cast<float*>(scratch);
  auto* wide = reinterpret_cast<float*>(static_cast<char*>(scratch) + plan.a_bytes);
  float* out = wide + plan.wide_bytes / 4;
  const std::int64_t panel_bytes = panel_bytes_f32(args.k, args.half);
  const std::int64_t most = plan.pairs ? kPairRows : kRows;
  const std::int64_t row_blocks = ceil_div(block.row_end - block.row_begin, plan.row_block);
  for (std::int64_t row = block.row_begin; row < block.row_end; row += plan.row_block) {
    const std::int64_t rows = block.row_end - row < plan.row_block ? block.row_end - row : plan.row_block;
    if (!plan.reads_a && (!block.same_rows || row_blocks > 1)) copy_rows(args, plan, row, rows, a);
    const float* a_rows = plan.reads_a ? static_cast<const float*>(args.a) + row * args.lda : a;
    const std::int64_t a_stride = plan.reads_a ? args.lda : kRowStride;
    const std::int64_t a_block = plan.reads_a ? kBlockK : rows * kRowStride;
    const std::int64_t groups = ceil_div(rows, most);
    for (std::int64_t panel = block.panel_begin; panel < block.panel_end;) {
      const std::int64_t left = block.panel_end - panel;
      // Several groups share what they were brought; only a single one takes more panels at once.
      const std::int64_t at_once = groups > 1 || plan.wide_bytes != 0 ? 1 : choice_of(plan.pairs, rows, left).panels;
      alignas(64) float bias[kPanelsMost * kPanelColumns];
      load_bias(args, panel, at_once, bias);
      const char* b = static_cast<const char*>(args.packed_b) + panel * panel_bytes;
      if (plan.wide_bytes != 0) {
        widen_panel(b, plan.k, wide);
        b = reinterpret_cast<const char*>(wide);
      }
      const std::int64_t columns = at_once * kPanelColumns;
      // What the epilogue adds may lie where C does.
      const bool direct = !args.half && (panel + at_once) * kPanelColumns <= args.n && args.epilogue.binary == Binary::kNone;
      float* to = direct ? static_cast<float*>(args.c) + row * args.ldc + panel * kPanelColumns : out;
      const std::int64_t stride = direct ? args.ldc : columns;
      // The next panel is fetched evenly over the groups and parts of this one, a few lines every kAheadRows rows of K.
      const bool fetch = panel + 1 < block.panel_end && rows > kInlineRows && !plan.pairs;
      const char* ahead = static_cast<const char*>(args.packed_b) + (panel + 1) * panel_bytes;
      const std::int64_t stretches = ceil_div(plan.k, kAheadRows) * groups * (kPanelColumns / kColumns);
      const std::int64_t lines = fetch ? ceil_div(panel_bytes / 64, stretches) : 0;
      const std::int64_t chunk = depth_at_once(plan.k, groups, block.l1_bytes);
      for (std::int64_t k = 0; k < plan.k; k += chunk) {
        const std::int64_t depth = plan.k - k < chunk ? plan.k - k : chunk;
        const std::int64_t ahead_bytes = lines * ceil_div(depth, kAheadRows) * 64;
        for (std::int64_t group = 0; group < groups; ++group) {
          const std::int64_t first = rows * group / groups;
          const std::int64_t here = rows * (group + 1) / groups - first;
          const float* from = a_rows + k / kBlockK * a_block + first * a_stride;
          float* sums = direct || chunk < plan.k ? to + first * stride : to;  // what is over at once needs no place of its own
          const Multiply run = choice_of(plan.pairs, here, at_once).run;
          for (std::int64_t part = 0; part < kPanelColumns; part += kColumns, ahead += ahead_bytes) {
            const std::int64_t offset = plan.pairs ? part / kTileColumns * kTileElements * 2 : (k * kPanelColumns + part) * 4;
            const float* start = k == 0 ? bias + part : sums + part;
            run({from, a_stride, a_block, b + offset, panel_bytes, depth, start, k == 0 ? 0 : stride, sums + part, stride, ahead, lines});
          }
          if (k + depth < plan.k) continue;
          // While the sums are in L1.
          const std::int64_t column = panel * kPanelColumns;
          if (args.epilogue.any()) {
            const std::int64_t valid = args.n - column < columns ? args.n - column : columns;
            finish_rows_to(args.epilogue, row + first, here, column, valid, sums, stride,
                           static_cast<float*>(args.c) + (row + first) * args.ldc + column, args.ldc);
          } else if (!direct) {
            write_rows(args, row + first, here, column, columns, sums);
          }
        }
      }
      panel += at_once;
    }
  }
}

}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
