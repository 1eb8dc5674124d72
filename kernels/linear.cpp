// Chooses the variant, splits C among the workers and gives each its scratch. Compiled for the base instruction set.
#include "kernels/linear.h"

#include <atomic>

#include "kernels/choose.h"
#include "kernels/dispatch.h"
#include "kernels/packed.h"
#include "kernels/scratch.h"

namespace ipexrun::kernels {
namespace {

/// How many parts C is cut into by rows and by panels. K is never cut, so every element of C is summed in one order, whatever the
/// number of threads.
struct Grid {
  std::int64_t rows;
  std::int64_t panels;
};

constexpr std::int64_t kRowUnit = 16;  // a cut between two tiles costs nothing

/// The cut with the smallest estimate for the slowest worker, in units of one 16 x 32 x 32 product: the products, plus reading (and
/// converting) its rows of A, plus reading its panels of B. The weights are rough estimates for operands in L2 or L3;
/// they only have to rank cuts: few rows -> cut N, many rows -> cut M.
Grid choose_grid(const LinearArgs& args, int threads) {
  const std::int64_t row_units = ceil_div(args.m, kRowUnit);
  const std::int64_t panels = panels_of(args.n);
  Grid best{1, 1};
  double best_cost = -1;
  for (std::int64_t rows = 1; rows <= threads && rows <= row_units; ++rows) {
    const std::int64_t columns = threads / rows < panels ? threads / rows : panels;
    const auto units = static_cast<double>(ceil_div(row_units, rows));
    const auto width = static_cast<double>(ceil_div(panels, columns));
    const double cost = units * width + 1.0 * units + 4.0 * width;
    if (best_cost < 0 || cost < best_cost) {
      best_cost = cost;
      best = {rows, columns};
    }
  }
  return best;
}

struct Job {
  const LinearArgs* args;
  const LinearVariant* variant;
  Grid grid;
  std::atomic<bool> failed{false};
};

/// The i-th of `parts` nearly equal slices of [0, total).
constexpr std::int64_t slice(std::int64_t total, std::int64_t parts, std::int64_t i) { return total * i / parts; }

void task(void* arg, int index) {
  auto* job = static_cast<Job*>(arg);
  const LinearArgs& args = *job->args;
  const std::int64_t row = index / job->grid.panels;
  const std::int64_t column = index % job->grid.panels;
  const std::int64_t row_units = ceil_div(args.m, kRowUnit);
  const std::int64_t panels = panels_of(args.n);
  LinearBlock block{slice(row_units, job->grid.rows, row) * kRowUnit, slice(row_units, job->grid.rows, row + 1) * kRowUnit,
                    slice(panels, job->grid.panels, column), slice(panels, job->grid.panels, column + 1)};
  if (block.row_end > args.m) block.row_end = args.m;
  void* scratch = nullptr;
  const std::size_t bytes = job->variant->scratch_bytes(args, block);
  if (bytes != 0) {
    scratch = thread_scratch(bytes);
    if (scratch == nullptr) {
      job->failed.store(true, std::memory_order_relaxed);  // run() of Parallel orders it before our read
      return;
    }
  }
  job->variant->run(args, block, scratch);
  release_large_scratch();
}

/// Below this many multiply-adds a call is shorter than waking a second worker.
constexpr double kSerialProducts = 1 << 18;

}  // namespace

bool linear_bf16_supported(const LinearArgs& args, IsaSet isa) {
  return args.m > 0 && args.n > 0 && args.k > 0 && packed_b_bytes(args.k, args.n) != 0 && choose(linear_variants(), isa).native;
}

const char* linear_bf16_variant(const LinearArgs&, IsaSet isa) { return choose(linear_variants(), isa).name; }

bool linear_bf16(const LinearArgs& args, const Parallel& parallel, IsaSet isa) {
  if (args.m <= 0 || args.n <= 0) return true;
  // Without a K there is nothing to multiply: the reference writes the bias or zeros.
  const LinearVariants table = linear_variants();
  const LinearVariant& variant = args.k > 0 ? choose(table, isa) : table.first[table.count - 1];
  const double products = static_cast<double>(args.m) * static_cast<double>(args.n) * static_cast<double>(args.k);
  const int threads = parallel.run != nullptr && products > kSerialProducts ? parallel.threads : 1;
  Job job{&args, &variant, choose_grid(args, threads > 1 ? threads : 1)};
  parallel(static_cast<int>(job.grid.rows * job.grid.panels), task, &job);
  return !job.failed.load(std::memory_order_relaxed);
}

}  // namespace ipexrun::kernels
