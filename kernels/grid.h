// How a product C[M,N] is cut among workers, by rows and by panels of packed.h. For sources that are compiled for the base instruction set.
#pragma once

#include <cstdint>

#include "kernels/caches.h"
#include "kernels/dispatch.h"
#include "kernels/packed.h"
#include "kernels/parallel.h"

namespace ipexrun::kernels {

/// How many parts C is cut into by rows and by panels. K is never cut, so every element of C is summed in one order, whatever the
/// number of threads.
struct Grid {
  std::int64_t rows;
  std::int64_t panels;
};

inline constexpr std::int64_t kRowUnit = 16;  // a cut between two tiles costs nothing

/// What it takes to read (and copy) 16 rows of A, and a panel of B, for a step of K, in units of one 16 x 32 x 32 product, and how a part
/// is shared out (shares.h). A layer's A was written just now, by other cores, whose caches it comes from, while weights come from L3:
/// measured on 16 cores of a Xeon as chains of products, each of which reads what the one before wrote (docs/performance-kernels.md, "Cuts
/// among workers"). These are of tiles.
struct GridCosts {
  double rows = 8;
  double panel = 2;
  double part = 216;            ///< parts of less are not shared out: about 2.5 microseconds
  double piece = 32;            ///< the least that is handed to a worker at once then
  std::int64_t element = 2;     ///< bytes of a number that is multiplied
  std::int64_t round = 2;       ///< units of rows that kernels multiply well together: a pair of tiles, or groups of some 13 rows
  std::int64_t panels = 2;      ///< panels that they do: tiles of A are used for each of them
  std::int64_t rows_most = 24;  ///< units of rows that kernels keep at once where L2 has 2 MiB
  std::int64_t row_steps = 1;   ///< steps of K that they round rows up to
  bool whole = true;            ///< a unit of few rows takes as long as one of 16
  bool rows_of_equal = true;    ///< of equal cuts the one by rows: layers in a row then leave an image's rows where they were
};

/// Of vectors, whose products take longer than reading.
inline constexpr GridCosts kGridCostsF32{.rows = 3,
                                         .panel = 1,
                                         .part = 48,
                                         .piece = 12,
                                         .element = 4,
                                         .round = 4,
                                         .panels = 1,
                                         .rows_most = 1 << 20,
                                         .row_steps = 8,
                                         .whole = false,
                                         .rows_of_equal = false};
/// bf16 and fp16: from those of fp32, by what they read and multiply; on two cores of Zen 4 as good as any.
inline constexpr GridCosts kGridCostsBf16 = [] {
  GridCosts costs = kGridCostsF32;
  costs.rows = 2;
  costs.panel = 0.6;
  costs.part = 54;
  costs.element = 2;
  costs.round = 2;
  costs.row_steps = 1;
  return costs;
}();

/// fp32 in parts (amx/linear_f32.cpp), whose products take six times as long, while what is read is split as well. From
/// what that takes alone; other cuts were not tried.
inline constexpr GridCosts kGridCostsParts{
    .rows = 3, .panel = 1, .part = 36, .piece = 8, .element = 6, .rows_most = 12, .rows_of_equal = false};

/// The cut with the smallest estimate for the slowest worker, in units of one 16 x 32 x 32 product: the products, plus reading its rows of
/// A, plus reading its panels of B. The costs only have to rank cuts: few rows -> cut N, many rows -> cut M.
inline Grid choose_grid(std::int64_t m, std::int64_t n, int threads, GridCosts costs = {}) {
  const std::int64_t row_units = ceil_div(m, kRowUnit);
  const std::int64_t panels = panels_of(n);
  Grid best{1, 1};
  double best_cost = -1;
  for (std::int64_t rows = 1; rows <= threads && rows <= row_units; ++rows) {
    const std::int64_t columns = threads / rows < panels ? threads / rows : panels;
    auto units = static_cast<double>(ceil_div(row_units, rows));
    if (!costs.whole && rows == 1) units = static_cast<double>(m) / kRowUnit;
    const auto width = static_cast<double>(ceil_div(panels, columns));
    const double cost = units * width + costs.rows * units + costs.panel * width;
    if (best_cost < 0 || cost < best_cost || (costs.rows_of_equal && cost == best_cost)) {
      best_cost = cost;
      best = {rows, columns};
    }
  }
  return best;
}

/// The i-th of `parts` nearly equal slices of [0, total).
constexpr std::int64_t slice(std::int64_t total, std::int64_t parts, std::int64_t i) { return total * i / parts; }

/// What the worker of that number computes, cut between units of `unit` rows.
inline LinearBlock block_of(const Grid& grid, int index, std::int64_t m, std::int64_t n, std::int64_t unit = kRowUnit) {
  const std::int64_t row = index / grid.panels;
  const std::int64_t column = index % grid.panels;
  const std::int64_t row_units = ceil_div(m, unit);
  const std::int64_t panels = panels_of(n);
  LinearBlock block{slice(row_units, grid.rows, row) * unit,
                    slice(row_units, grid.rows, row + 1) * unit,
                    slice(panels, grid.panels, column),
                    slice(panels, grid.panels, column + 1),
                    l2_bytes(),
                    l1_bytes()};
  if (block.row_end > m) block.row_end = m;
  return block;
}

/// Workers that a call pays for: below so many multiply-adds it is shorter than waking a second one.
inline int workers_for(std::int64_t m, std::int64_t n, std::int64_t k, const Parallel& parallel) {
  constexpr double kSerialProducts = 1 << 18;
  const double products = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  return parallel.run != nullptr && products > kSerialProducts && parallel.threads > 1 ? parallel.threads : 1;
}

}  // namespace ipexrun::kernels
