// Who computes which part of a product C[M,N]: each worker half of its part of the grid at once, then the rest of it in pieces, then pieces
// that others have not reached. Cores that look alike are seldom equally fast: of 16 virtual ones some took 2.5 times as long as others for
// the same product, for seconds, since the other thread of their core belongs to somebody else; cores of two kinds and busy ones differ as
// much. A call lasts as long as its slowest worker. K is never cut, so the bits do not depend on who computes what. Method: static shares
// first, the rest dynamic (Donfack, Grigori, Gropp, Kale, "Hybrid static/dynamic scheduling for already optimized dense matrix
// factorization", 2012). For sources that are compiled for the base instruction set.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

#include "kernels/caches.h"
#include "kernels/dispatch.h"
#include "kernels/grid.h"
#include "kernels/packed.h"
#include "kernels/parallel.h"
#include "kernels/scratch.h"

namespace ipexrun::kernels {

struct Shares {
  static constexpr std::int64_t kPartsMost = 128;  ///< with more, each computes its own

  Grid grid{1, 1};
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t unit = kRowUnit;  ///< rows that are not cut
  bool by_rows = false;          ///< what follows counts units; else panels
  std::int64_t own = 0;          ///< of its part, that a worker computes first
  std::int64_t piece = 0;
  std::int64_t pieces = 0;  ///< of the longest part; 0: a worker computes all of its part at once

  [[nodiscard]] std::int64_t parts() const { return grid.rows * grid.panels; }

  /// Of that part, from unit or panel `from` to `to` of it; empty where the part has no so many.
  [[nodiscard]] LinearBlock cut(std::int64_t part, std::int64_t from, std::int64_t to) const {
    LinearBlock block = block_of(grid, static_cast<int>(part), m, n, unit);
    std::int64_t& begin = by_rows ? block.row_begin : block.panel_begin;
    std::int64_t& end = by_rows ? block.row_end : block.panel_end;
    const std::int64_t each = by_rows ? unit : 1;
    if (!by_rows) block.panel_ahead = block.panel_end;
    end = std::min(end, begin + to * each);
    begin = std::min(end, begin + from * each);
    return block;
  }
  [[nodiscard]] LinearBlock first(std::int64_t part) const {
    return pieces == 0 ? block_of(grid, static_cast<int>(part), m, n, unit) : cut(part, 0, own);
  }
  [[nodiscard]] LinearBlock later(std::int64_t part, std::int64_t i) const { return cut(part, own + i * piece, own + (i + 1) * piece); }
};

/// `steps`: of kStepK rows of K. Cut along rows or panels, whichever lets less be read again and others wait less for the last piece: rows
/// of A that stay in L2 (half of it), as kernels keep them from one block to the next, cost little, and so do panels that do; where rows do
/// not, kernels read B again for each block of them anyway. Nothing is shared where reading again would cost more than a twelfth of the
/// products, nor where rows are so few that memory bounds the call.
inline Shares shares_of(std::int64_t m, std::int64_t n, std::int64_t steps, int threads, GridCosts costs = {}) {
  constexpr std::int64_t kOfAPart = 8;  // no piece is smaller than one in so many
  constexpr double kInL2 = 0.03;        // of the cost of reading
  constexpr double kMost = 1.0 / 12;
  constexpr double kWait = 0.25;  // of a piece
  Shares shares;
  shares.grid = choose_grid(m, n, threads, costs);
  shares.m = m;
  shares.n = n;
  const std::int64_t parts = shares.parts();
  if (parts <= 1 || parts > Shares::kPartsMost || steps <= 0 || m <= kRowUnit) return shares;
  const std::int64_t height = ceil_div(ceil_div(m, kRowUnit), shares.grid.rows);
  const std::int64_t width = ceil_div(panels_of(n), shares.grid.panels);
  if (static_cast<double>(height * width * steps) < costs.part) return shares;
  const std::int64_t step_bytes = kStepK * costs.element;
  const std::int64_t row_bytes = ceil_div(steps, costs.row_steps) * costs.row_steps * step_bytes;
  const std::int64_t rows_fit = std::min(l2_bytes() / 2 / (row_bytes * kRowUnit), costs.rows_most * l2_bytes() / (2 << 20));
  const std::int64_t panels_fit = l2_bytes() / 2 / (steps * step_bytes * kPanelColumns);
  double best = -1;
  for (const bool by_rows : {true, false}) {
    const std::int64_t length = by_rows ? height : width;
    const std::int64_t across = by_rows ? width : height;
    const std::int64_t round = by_rows ? costs.round : costs.panels;
    const auto least = static_cast<std::int64_t>(costs.piece / static_cast<double>(across * steps)) + 1;
    std::int64_t piece = std::max(ceil_div(length, kOfAPart), least);
    if (by_rows && height > rows_fit && across > panels_fit) piece = std::max(piece, rows_fit);
    piece = ceil_div(piece, round) * round;
    const std::int64_t own = std::max(length / 2 / round * round, round);
    if (own >= length || 2 * (length - own) < piece) continue;
    const std::int64_t pieces = ceil_div(length - own, piece);
    double again = (by_rows ? costs.panel : costs.rows) * static_cast<double>(across * pieces);
    if (by_rows && height > rows_fit && piece >= rows_fit) again = 0;
    if (across <= (by_rows ? panels_fit : rows_fit)) again *= kInL2;
    if (again > kMost * static_cast<double>(height * width)) continue;
    const double cost = again + kWait * static_cast<double>(piece * across);
    if (best >= 0 && cost >= best) continue;
    best = cost;
    shares.by_rows = by_rows;
    shares.own = own;
    shares.piece = piece;
    shares.pieces = pieces;
  }
  return shares;
}

/// Computes C: run(worker's block) for blocks that cover it once, concurrently and, of one worker, one after the other: `begin()` makes
/// what a worker keeps from one to the next, which run(kept, block) gets. Neither throws.
template <typename Begin, typename Run>
void run_shares(const Shares& shares, const Parallel& parallel, const Begin& begin, const Run& run) {
  struct alignas(64) Taken {
    std::atomic<std::int64_t> pieces{0};
  };
  struct Job {
    const Shares& shares;
    const Begin& begin;
    const Run& run;
    Taken* taken;  // of each part
  };
  const auto parts = static_cast<int>(shares.parts());
  alignas(Taken) std::byte room[Shares::kPartsMost * sizeof(Taken)];
  Job job{shares, begin, run, reinterpret_cast<Taken*>(room)};
  for (int part = 0; shares.pieces > 0 && part < parts; ++part) new (job.taken + part) Taken;
  const auto work = [](void* arg, int own) {
    const Job& all = *static_cast<const Job*>(arg);
    auto kept = all.begin();
    all.run(kept, all.shares.first(own));
    const std::int64_t pieces = all.shares.pieces;
    const auto others = static_cast<int>(pieces > 0 ? all.shares.parts() : 0);
    for (int i = 0; i < others; ++i) {
      const int part = own + i < others ? own + i : own + i - others;
      std::atomic<std::int64_t>& taken = all.taken[part].pieces;
      // Reading comes first: a line that is only read stays in the caches of all.
      while (taken.load(std::memory_order_relaxed) < pieces) {
        const std::int64_t piece = taken.fetch_add(1, std::memory_order_relaxed);
        if (piece >= pieces) break;
        const LinearBlock block = all.shares.later(part, piece);
        if (block.row_begin < block.row_end && block.panel_begin < block.panel_end) all.run(kept, block);
      }
    }
  };
  parallel(parts, work, &job);
}

/// The same for a variant's run(args, block, scratch). False when memory for scratch was short; C is then undefined.
template <typename Args, typename Variant>
bool run_blocks(const Args& args, const Variant& variant, const Shares& shares, const Parallel& parallel) {
  struct Scratch {
    void* at = nullptr;
    std::size_t bytes = 0;
    std::int64_t row_begin = -1;
    std::int64_t row_end = -1;
    Scratch() = default;
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    ~Scratch() { release_large_scratch(); }
  };
  std::atomic<bool> failed{false};
  run_shares(
      shares, parallel, [] { return Scratch(); },
      [&](Scratch& scratch, LinearBlock block) {
        const std::size_t bytes = variant.scratch_bytes(args, block);
        block.same_rows = bytes <= scratch.bytes && block.row_begin == scratch.row_begin && block.row_end == scratch.row_end;
        if (bytes > scratch.bytes) {  // a failed one is not asked for again
          scratch.at = thread_scratch(bytes);
          scratch.bytes = bytes;
        }
        scratch.row_begin = block.row_begin;
        scratch.row_end = block.row_end;
        if (bytes != 0 && scratch.at == nullptr) {
          failed.store(true, std::memory_order_relaxed);  // run() of Parallel orders it before our read
          return;
        }
        variant.run(args, block, scratch.at);
      });
  return !failed.load(std::memory_order_relaxed);
}

}  // namespace ipexrun::kernels
