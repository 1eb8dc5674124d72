// C on AMX, whatever the tiles hold: 32 x 32 of C in four tiles, two tiles of A and two of B beside them; on a shared core one half of the
// columns after the other (shared_core.h).
//
// Loops, outermost first: blocks of rows, chunks of panels, blocks of K (at most 1 KiB of a row, so that a strip's A stays in L1), strips
// of 32 rows, panels. The sums of a block of rows and a chunk wait in L2 between blocks of K. A slice is one block of K of a chunk: while
// its products run, the B and A of the next slice are fetched into L2, evenly, a few lines a step; a burst at the slice's begin would wait
// for L3 or memory. A is brought into tiles a slice ahead of its first use, and used again by the other chunks; where its rows follow each
// other and K is short, the lines of a tile are loaded from where they lie (a copy took a third of a 256 to 64 product of 56 x 56 rows),
// and those of the next strip are fetched beside the products of one. What the first block of K starts from (the bias, say) is a number a
// column. The last block of K leaves its sums in C where these are its elements and it is whole, else in a stage whose rows are converted
// and written to C between the products of the next block. Neighbours in a row of C follow each other: written down a column, each 64 bytes
// of a wide C would cost a page walk (seen: half the speed).
//
// A Kind has
//   args                              with packed_b (steps of 2 KiB, two tiles each), c, ldc, n
//   whole                             sums are elements of C as they are
//   start(panel)                      -> what the sums of the 32 columns start from, 128 bytes
//   a(row, step)                      -> where A lies from there on
//   lies()                            rows of A follow each other, are whole steps, and begin with a line
//   pack(row, rows, padded, first, count, to)
//                                     `count` steps of rows of A into tiles of 16 x 64 bytes: tile t of a group of 16 rows at t KiB;
//                                     rows from `rows` to `padded` become zeros (their products are never stored)
//   pending(sums, row, rows, panel, next)
//                                     -> a finished block, 128 bytes a row, that waits to become rows of C; it has `rows`, not yet written
//   drain(pending, count)             writes up to `count` of them: called between products, whose unit does not convert and store
//   multiply<C, A, B>()
// Internal linkage, see dispatch.h.
#pragma once

#include <immintrin.h>

#include "kernels/amx/next_block.h"
#include "kernels/amx/shared_core.h"
#include "kernels/amx/tile.h"
#include "kernels/dispatch.h"
#include "kernels/packed.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

using namespace amx;

constexpr std::int64_t kTileBytes = 1024;
constexpr std::int64_t kBlockBytes = 4 * kTileBytes;  // 32 x 32 of C in fp32
constexpr std::int64_t kStripRows = 32;
// Sizes by measurement on a core with 48 KiB of L1 and 2 MiB of L2 (bench/linear_vs_torch.py); Sizes below scales what lies in L2.
constexpr std::int64_t kStepsMost = 16;  // of a block of K
constexpr std::int64_t kPanelsMost = 16;
constexpr std::int64_t kNearBytes = 16384;     // of a strip's A, that the next one's fits into L1 beside
constexpr std::int64_t kPrefetchBytes = 4096;  // of B, ahead of the products, where nothing came before that could fetch it

/// Where the four tiles of a 32 x 32 block of fp32 lie: how far the lines of one, the lower pair and the right ones are from the
/// first. All in bytes.
struct Quad {
  char* at;
  std::int64_t line;
  std::int64_t down;
  std::int64_t right;
};

constexpr Quad in_rows(char* at, std::int64_t line) { return {at, line, 16 * line, 64}; }
/// The same 16 numbers in each line of a tile.
constexpr Quad in_start(char* at) { return {at, 0, 0, 64}; }

/// What is to stay in L2, as parts of it.
struct Sizes {
  std::int64_t rows_most;   // of a block of rows: the more, the less often B comes from beyond L2
  std::int64_t a_bytes;     // the same, for a very long K
  std::int64_t resident;    // up to so much A of a block of rows stays in L2; else it comes back with each slice
  std::int64_t slice;       // B of a slice
  std::int64_t slice_more;  // where A comes back with each
  std::int64_t sums;        // of a block of rows and a chunk
};

constexpr Sizes sizes_of(std::int64_t l2_bytes) {
  const std::int64_t unit = l2_bytes / 2048;  // 1 KiB of 2 MiB
  return {384 * unit / 1024 / kStripRows * kStripRows, 6144 * unit, 1024 * unit, 128 * unit, 256 * unit, 600 * unit};
}

struct Plan {
  std::int64_t steps;  // of 64 bytes of a row of tiles
  std::int64_t k_blocks;
  std::int64_t row_block;  // a multiple of 32
  std::int64_t chunk;      // panels
  bool resident;           // A of a block of rows stays in L2
  bool direct;             // whole strips are multiplied from where A lies
  std::int64_t a_bytes;
  std::int64_t sums_bytes;

  [[nodiscard]] std::int64_t step_of(std::int64_t k_block) const { return steps * k_block / k_blocks; }
};

constexpr std::int64_t at_least(std::int64_t value, std::int64_t low) { return value < low ? low : value; }
constexpr std::int64_t at_most(std::int64_t value, std::int64_t high) { return value > high ? high : value; }
/// The size of the pieces when `total` is cut into equal ones of at most `most`: 260 is 2 x 130, not 256 + 4.
constexpr std::int64_t equal_pieces(std::int64_t total, std::int64_t most) { return ceil_div(total, ceil_div(total, most)); }

/// `lies`: A, see Kind.
inline Plan plan_of(std::int64_t steps, const LinearBlock& block, bool lies) {
  Plan plan{};
  const std::int64_t rows = block.row_end - block.row_begin;
  const std::int64_t panels = block.panel_end - block.panel_begin;
  const Sizes sizes = sizes_of(block.l2_bytes);
  plan.steps = steps;
  // One strip passes over B once: nothing is used again that blocks of K would keep near.
  plan.k_blocks = rows <= kStripRows ? 1 : ceil_div(plan.steps, kStepsMost);
  const std::int64_t rows_fit = at_least(sizes.a_bytes / (plan.steps * 64) / kStripRows * kStripRows, kStripRows);
  plan.row_block = ceil_div(equal_pieces(rows, at_most(rows_fit, at_least(sizes.rows_most, kStripRows))), kStripRows) * kStripRows;
  plan.a_bytes = plan.row_block / 16 * plan.steps * kTileBytes;
  plan.resident = plan.a_bytes <= sizes.resident;
  plan.direct = lies && rows > kStripRows && plan.k_blocks == 1;
  const std::int64_t panel_bytes = ceil_div(plan.steps, plan.k_blocks) * kStepBytes;
  std::int64_t most = (plan.resident ? sizes.slice : sizes.slice_more) / panel_bytes;
  if (plan.k_blocks > 1) most = at_most(most, sizes.sums / (plan.row_block / kStripRows * kBlockBytes));
  plan.chunk = equal_pieces(panels, at_most(at_least(most, 2), kPanelsMost));
  if (plan.k_blocks > 1) plan.sums_bytes = plan.chunk * (plan.row_block / kStripRows) * kBlockBytes;
  return plan;
}

inline TileConfig config_for(std::int64_t rows) {
  TileConfig config{};
  config.palette = 1;
  for (int tile = 0; tile < 8; ++tile) {
    config.bytes_per_row[tile] = 64;
    config.rows[tile] = tile < 5 ? static_cast<std::uint8_t>(rows) : 16;  // 0-3: C, 4: A, 5: the lower A, 6-7: B
  }
  return config;
}

inline __attribute__((always_inline)) void prefetch_tile(const char* b) {
  for (std::int64_t line = 0; line < kTileBytes; line += 64) _mm_prefetch(b + kPrefetchBytes + line, _MM_HINT_T0);
}

/// Rows of A as the caller has them: how far one is from the next, and a step of K from the one before. In bytes.
struct Rows {
  const char* at;
  std::int64_t stride;
  std::int64_t step;
};

/// Tiles of A, 16 rows each: how far one line of a tile is from the next, and a step of K from the one before.
struct TilesA {
  const char* upper;
  const char* lower;
  std::int64_t line;
  std::int64_t step;
};

constexpr TilesA packed_tiles(const char* upper, std::int64_t group_bytes) { return {upper, upper + group_bytes, 64, kTileBytes}; }
constexpr TilesA tiles_in(const Rows& rows) { return {rows.at, rows.at + 16 * rows.stride, rows.stride, rows.step}; }

/// Lines that will be wanted, fetched a few at a time between products.
struct Ahead {
  const char* near = nullptr;  ///< of the next block or strip; none where there are no lines
  std::int64_t near_lines = 0;
  bool near_in_l1 = false;   ///< else L2
  const char* at = nullptr;  ///< into L2
  std::int64_t lines = 0;
};

/// 32 rows x 32 columns over `steps` steps of K; `pending` is written meanwhile.
/// kFirst: B was not fetched before. What is not needed is left out by template: where the other thread of the core is busy, instructions
/// between products cost as much as products do.
template <typename Kind, bool kFirst, bool kNear, bool kDrain>
struct Pair {
  TilesA a;
  const char* b;
  std::int64_t steps;
  Quad from;
  Quad to;
  typename Kind::Pending pending;
  Ahead ahead;

  /// All tile registers: four of C, two of A and two of B.
  void whole() {
    const Each each = share(steps);
    const char* upper = a.upper;
    const char* lower = a.lower;
    tile_load<0>(from.at, from.line);
    tile_load<1>(from.at + from.right, from.line);
    tile_load<2>(from.at + from.down, from.line);
    tile_load<3>(from.at + from.down + from.right, from.line);
    for (std::int64_t s = 0; s < steps; ++s, upper += a.step, lower += a.step, b += kStepBytes) {
      if constexpr (kFirst) prefetch_tile(b);
      if constexpr (kFirst) prefetch_tile(b + kTileBytes);
      tile_load<4>(upper, a.line);
      tile_stream<6>(b, 64);
      Kind::template multiply<0, 4, 6>();
      tile_load<5>(lower, a.line);
      Kind::template multiply<2, 5, 6>();
      tile_stream<7>(b + kTileBytes, 64);
      Kind::template multiply<1, 4, 7>();
      Kind::template multiply<3, 5, 7>();
      beside(each);
    }
    tile_store<0>(to.at, to.line);
    tile_store<1>(to.at + to.right, to.line);
    tile_store<2>(to.at + to.down, to.line);
    tile_store<3>(to.at + to.down + to.right, to.line);
  }

  /// Columns 0-15, then the others, in four registers: A, which L1 holds, is read twice.
  void halves() {
    const Each each = share(2 * steps);
    for (std::int64_t half = 0; half < 2; ++half) {
      const char* upper = a.upper;
      const char* lower = a.lower;
      const char* columns = b + half * kTileBytes;
      tile_load<0>(from.at + half * from.right, from.line);
      tile_load<1>(from.at + half * from.right + from.down, from.line);
      for (std::int64_t s = 0; s < steps; ++s, upper += a.step, lower += a.step, columns += kStepBytes) {
        if constexpr (kFirst) prefetch_tile(columns);
        tile_stream<6>(columns, 64);
        tile_load<4>(upper, a.line);
        Kind::template multiply<0, 4, 6>();
        tile_load<4>(lower, a.line);
        Kind::template multiply<1, 4, 6>();
        beside(each);
      }
      tile_store<0>(to.at + half * to.right, to.line);
      tile_store<1>(to.at + half * to.right + to.down, to.line);
    }
  }

 private:
  /// What is done beside a step.
  struct Each {
    std::int64_t rows;
    std::int64_t lines;
    std::int64_t near;
  };

  [[nodiscard]] Each share(std::int64_t of) const {
    return {ceil_div(pending.rows, of), ceil_div(ahead.lines, of), ceil_div(ahead.near_lines, of)};
  }

  [[gnu::always_inline]] void beside(const Each& each) {
    if constexpr (kDrain) Kind::drain(pending, each.rows);
    if constexpr (kNear) {
      if (ahead.near_in_l1) {
        for (std::int64_t i = 0; i < each.near; ++i, ahead.near += 64) _mm_prefetch(ahead.near, _MM_HINT_T0);
      } else {
        for (std::int64_t i = 0; i < each.near; ++i, ahead.near += 64) _mm_prefetch(ahead.near, _MM_HINT_T1);
      }
    }
    for (std::int64_t i = 0; i < each.lines; ++i, ahead.at += 64) _mm_prefetch(ahead.at, _MM_HINT_T1);
  }
};

/// Not inlined: the loops want all registers.
template <typename Kind, bool kFirst, bool kNear, bool kDrain>
[[gnu::noinline]] void multiply_pair_of(bool shared, Pair<Kind, kFirst, kNear, kDrain> pair) {
  shared ? pair.halves() : pair.whole();
}

/// `shared`: the core (shared_core.h).
template <typename Kind, bool kFirst>
void multiply_pair(bool shared, const TilesA& a, const char* b, std::int64_t steps, const Quad& from, const Quad& to,
                   const typename Kind::Pending& pending, const Ahead& ahead) {
  const bool drains = pending.rows > 0;
  if (ahead.near_lines > 0) {
    drains ? multiply_pair_of<Kind, kFirst, true, true>(shared, {a, b, steps, from, to, pending, ahead})
           : multiply_pair_of<Kind, kFirst, true, false>(shared, {a, b, steps, from, to, pending, ahead});
  } else {
    drains ? multiply_pair_of<Kind, kFirst, false, true>(shared, {a, b, steps, from, to, pending, ahead})
           : multiply_pair_of<Kind, kFirst, false, false>(shared, {a, b, steps, from, to, pending, ahead});
  }
}

/// Up to 16 rows x 32 columns.
template <typename Kind>
void multiply_single(const char* a, const char* b, std::int64_t steps, const Quad& from, const Quad& to, typename Kind::Pending pending) {
  const std::int64_t rows = ceil_div(pending.rows, steps);
  tile_load<0>(from.at, from.line);
  tile_load<1>(from.at + from.right, from.line);
  for (std::int64_t s = 0; s < steps; ++s) {
    const char* columns = b + s * kStepBytes;
    prefetch_tile(columns);
    prefetch_tile(columns + kTileBytes);
    tile_load<4>(a + s * kTileBytes, 64);
    tile_load<6>(columns, 64);
    Kind::template multiply<0, 4, 6>();
    tile_load<6>(columns + kTileBytes, 64);
    Kind::template multiply<1, 4, 6>();
    Kind::drain(pending, rows);
  }
  tile_store<0>(to.at, to.line);
  tile_store<1>(to.at + to.right, to.line);
}

/// Up to 16 rows x 64 columns, for calls that have no more rows, which memory bounds: two streams of B.
template <typename Kind>
void multiply_wide(const char* a, const char* b0, const char* b1, std::int64_t steps, const char* left_from, const char* right_from,
                   const Quad& left_to, const Quad& right_to) {
  tile_load<0>(left_from, 0);
  tile_load<1>(left_from + 64, 0);
  tile_load<2>(right_from, 0);
  tile_load<3>(right_from + 64, 0);
  for (std::int64_t s = 0; s < steps; ++s) {
    const char* left = b0 + s * kStepBytes;
    const char* right = b1 + s * kStepBytes;
    prefetch_tile(left);
    prefetch_tile(left + kTileBytes);
    prefetch_tile(right);
    prefetch_tile(right + kTileBytes);
    tile_load<4>(a + s * kTileBytes, 64);
    tile_load<6>(left, 64);
    Kind::template multiply<0, 4, 6>();
    tile_load<6>(left + kTileBytes, 64);
    Kind::template multiply<1, 4, 6>();
    tile_load<6>(right, 64);
    Kind::template multiply<2, 4, 6>();
    tile_load<6>(right + kTileBytes, 64);
    Kind::template multiply<3, 4, 6>();
  }
  tile_store<0>(left_to.at, left_to.line);
  tile_store<1>(left_to.at + left_to.right, left_to.line);
  tile_store<2>(right_to.at, right_to.line);
  tile_store<3>(right_to.at + right_to.right, right_to.line);
}

/// One worker's run: what all loops share.
template <typename Kind>
struct Run {
  const Kind& kind;
  const LinearBlock& block;
  Plan plan;
  char* a;
  char* sums;
  char* stage;  // two blocks, used in turn
  bool shared;  // the core
  std::int64_t turn = 0;
  typename Kind::Pending pending{};

  [[nodiscard]] const char* panel(std::int64_t index) const {
    return static_cast<const char*>(kind.args.packed_b) + index * plan.steps * kStepBytes;
  }
  [[nodiscard]] Quad next_stage() const { return in_rows(stage + turn * kBlockBytes, 128); }

  /// True when tiles can be stored into C as they are.
  [[nodiscard]] bool stores_whole_tiles(std::int64_t rows, std::int64_t panel_index) const {
    return kind.whole && rows % 16 == 0 && (panel_index + 1) * kPanelColumns <= kind.args.n;
  }
  [[nodiscard]] Quad in_c(std::int64_t row, std::int64_t panel_index) const {
    return in_rows(static_cast<char*>(kind.args.c) + (row * kind.args.ldc + panel_index * kPanelColumns) * 4, kind.args.ldc * 4);
  }

  /// What next_stage() holds is to be written to C from (row, panel) on. The block before it has been written.
  void queue(std::int64_t row, std::int64_t rows, std::int64_t panel_index, NextBlock next = {}) {
    pending = kind.pending(next_stage().at, row, rows, panel_index, next);
    turn ^= 1;
  }

  void drain_all() { Kind::drain(pending, pending.rows); }
};

/// All columns of a call of at most 16 rows.
template <typename Kind>
void run_few_rows(Run<Kind>& run, std::int64_t rows) {
  const std::int64_t steps = run.plan.steps;
  std::int64_t panel = run.block.panel_begin;
  for (; panel + 2 <= run.block.panel_end; panel += 2) {
    const Quad left = in_rows(run.stage, 128);
    const Quad right = in_rows(run.stage + kBlockBytes, 128);
    multiply_wide<Kind>(run.a, run.panel(panel), run.panel(panel + 1), steps, run.kind.start(panel), run.kind.start(panel + 1), left,
                        right);
    for (std::int64_t i = 0; i < 2; ++i) {
      run.queue(run.block.row_begin, rows, panel + i);
      run.drain_all();
    }
  }
  if (panel < run.block.panel_end) {
    multiply_single<Kind>(run.a, run.panel(panel), steps, in_start(run.kind.start(panel)), run.next_stage(), {});
    run.queue(run.block.row_begin, rows, panel);
  }
}

/// One block of K of a chunk [first, end) of panels and of the rows [row, row + rows). Empty when end <= first.
struct Slice {
  std::int64_t row;
  std::int64_t rows;
  std::int64_t first;
  std::int64_t end;
  std::int64_t k_block;
};

/// The slice after `now`, empty after the last.
template <typename Kind>
Slice after(const Run<Kind>& run, const Slice& now) {
  const Plan& plan = run.plan;
  const LinearBlock& block = run.block;
  Slice next = now;
  if (++next.k_block < plan.k_blocks) return next;
  next.k_block = 0;
  next.first = now.end;
  if (next.first >= block.panel_end) {
    next.row += now.rows;
    next.rows = at_most(block.row_end - next.row, plan.row_block);
    next.first = block.panel_begin;
  }
  next.end = next.rows <= 0 ? next.first : at_most(next.first + plan.chunk, block.panel_end);
  return next;
}

/// Walks over what the next slice reads, in runs of adjacent lines: its panels of B, then its A.
class Walk {
 public:
  template <typename Kind>
  Walk(const Run<Kind>& run, const Slice& next, std::int64_t blocks) {
    if (next.end <= next.first) return;
    const Plan& plan = run.plan;
    const std::int64_t step = plan.step_of(next.k_block);
    const std::int64_t steps = plan.step_of(next.k_block + 1) - step;
    parts_[0] = {run.panel(next.first) + step * kStepBytes, plan.steps * kStepBytes, next.end - next.first, steps * kStepBytes / 64};
    if (next.first == run.block.panel_begin) {
      const Rows a = run.kind.a(next.row, step);
      parts_[1] = {a.at, a.stride, next.rows, ceil_div(steps * a.step, 64)};
    } else if (!plan.resident) {
      parts_[1] = {run.a + step * kTileBytes, plan.steps * kTileBytes, ceil_div(next.rows, 16), steps * kTileBytes / 64};
    }
    share_ = ceil_div(parts_[0].count * parts_[0].lines + parts_[1].count * parts_[1].lines, blocks);
  }

  /// A block's share: at most one run.
  void next(Ahead* ahead) {
    while (part_ < 2 && parts_[part_].count <= 0) ++part_;
    if (part_ == 2) return;
    Part& part = parts_[part_];
    ahead->at = part.at + line_ * 64;
    ahead->lines = at_most(share_, part.lines - line_);
    line_ += ahead->lines;
    if (line_ < part.lines) return;
    line_ = 0;
    part.at += part.stride;
    --part.count;
  }

 private:
  struct Part {
    const char* at = nullptr;
    std::int64_t stride = 0;
    std::int64_t count = 0;
    std::int64_t lines = 0;
  };
  Part parts_[2];
  int part_ = 0;
  std::int64_t line_ = 0;
  std::int64_t share_ = 0;
};

/// All strips of a slice; nothing was fetched for the first of all.
template <typename Kind>
void run_slice(Run<Kind>& run, const Slice& slice, const Slice& next, bool first_of_all) {
  const Plan& plan = run.plan;
  const std::int64_t step = plan.step_of(slice.k_block);
  const std::int64_t steps = plan.step_of(slice.k_block + 1) - step;
  const bool last = slice.k_block + 1 == plan.k_blocks;
  const std::int64_t group_bytes = plan.steps * kTileBytes;  // of A, 16 rows
  const bool packed = run.block.same_rows && slice.rows == run.block.row_end - run.block.row_begin;
  const std::int64_t lie = plan.direct ? slice.rows / kStripRows * kStripRows : 0;  // rows that are multiplied where they are
  if (slice.first == run.block.panel_begin && !packed && lie < slice.rows) {
    const std::int64_t rows = slice.rows - lie;
    run.kind.pack(slice.row + lie, rows, ceil_div(rows, 16) * 16, step, steps, run.a + lie / 16 * group_bytes);
  }
  // A single strip passes over each line once: fetching it into L2 first would be a detour (10%).
  const std::int64_t strips = ceil_div(slice.rows, kStripRows);
  const bool fetches = strips > 1;
  Walk walk(run, fetches ? next : Slice{}, strips * (slice.end - slice.first));
  const std::int64_t near = ceil_div(lie > 0 ? kStripRows * steps : 0, slice.end - slice.first);  // of the next strip, a block
  const bool near_in_l1 = steps * 64 * kStripRows <= kNearBytes;
  // Whole strips only: what is beyond may be another worker's.
  const auto next_block = [&](std::int64_t r, std::int64_t panel) -> NextBlock {
    if (r + 2 * kStripRows <= slice.rows) return {kStripRows, 0};
    if (slice.rows < kStripRows || next.row != slice.row || panel + slice.end - slice.first >= next.end) return {};
    return {-r, (slice.end - slice.first) * kPanelColumns};
  };
  char* sums = run.sums;
  for (std::int64_t r = 0; r < slice.rows; r += kStripRows) {
    const std::int64_t here = at_most(slice.rows - r, kStripRows);
    const TilesA a =
        r < lie ? tiles_in(run.kind.a(slice.row + r, step)) : packed_tiles(run.a + r / 16 * group_bytes + step * kTileBytes, group_bytes);
    const char* below = r + kStripRows < lie ? run.kind.a(slice.row + r + kStripRows, step).at : nullptr;
    for (std::int64_t panel = slice.first; panel < slice.end; ++panel, sums += kBlockBytes) {
      const char* b = run.panel(panel) + step * kStepBytes;
      const Quad from = slice.k_block == 0 ? in_start(run.kind.start(panel)) : in_rows(sums, 128);
      const bool direct = last && run.stores_whole_tiles(here, panel);
      const Quad to = direct ? run.in_c(slice.row + r, panel) : last ? run.next_stage() : in_rows(sums, 128);
      Ahead ahead;
      if (slice.k_block > 0) {
        ahead.near = sums + kBlockBytes;
        ahead.near_lines = kBlockBytes / 64;
        ahead.near_in_l1 = true;
      } else if (below != nullptr) {
        ahead.near = below + (panel - slice.first) * near * 64;
        ahead.near_lines = near;
        ahead.near_in_l1 = near_in_l1;
      }
      walk.next(&ahead);
      if (here <= 16) {
        multiply_single<Kind>(a.upper, b, steps, from, to, run.pending);
      } else if (r == 0 && (first_of_all || !fetches)) {
        multiply_pair<Kind, true>(run.shared, a, b, steps, from, to, run.pending, ahead);
      } else {
        multiply_pair<Kind, false>(run.shared, a, b, steps, from, to, run.pending, ahead);
      }
      run.pending.rows = 0;
      if (last && !direct) run.queue(slice.row + r, here, panel, next_block(r, panel));
    }
  }
}

/// Scratch of run_blocks, a multiple of 64 bytes.
inline std::int64_t blocks_bytes(std::int64_t steps, const LinearBlock& block) {
  const Plan plan = plan_of(steps, block, false);
  return plan.a_bytes + plan.sums_bytes + 2 * kBlockBytes;
}

/// The whole block of C.
template <typename Kind>
void run_blocks(const Kind& kind, std::int64_t steps, const LinearBlock& block, void* scratch) {
  const Plan plan = plan_of(steps, block, kind.lies());
  char* a = static_cast<char*>(scratch);
  char* sums = a + plan.a_bytes;
  char* stage = sums + plan.sums_bytes;
  const std::int64_t all_rows = block.row_end - block.row_begin;
  Run<Kind> run{kind, block, plan, a, sums, stage, all_rows > 16 && core_is_shared()};
  tile_configure(config_for(at_most(all_rows, 16)));
  if (all_rows <= 16) {
    // Tiles of a call below 16 rows are configured that short; any other call multiplies whole tiles.
    if (!block.same_rows) kind.pack(block.row_begin, all_rows, all_rows, 0, plan.steps, run.a);
    run_few_rows(run, all_rows);
  } else {
    Slice slice{block.row_begin, at_most(all_rows, plan.row_block), block.panel_begin,
                at_most(block.panel_begin + plan.chunk, block.panel_end), 0};
    for (bool first = true; slice.end > slice.first; first = false) {
      const Slice next = after(run, slice);
      run_slice(run, slice, next, first);
      slice = next;
    }
  }
  run.drain_all();
  tile_release();
}

}  // namespace
}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
