// Chooses the variant, splits C among the workers and gives each its scratch. Compiled for the base instruction set.
#include "kernels/linear.h"

#include <atomic>

#include "kernels/choose.h"
#include "kernels/dispatch.h"
#include "kernels/grid.h"
#include "kernels/scratch.h"

namespace ipexrun::kernels {
namespace {

/// Tiles take no windows.
const LinearVariant& variant_of(const LinearArgs& args, IsaSet isa) {
  const LinearVariants table = linear_variants();
  if (args.k <= 0) return table.first[table.count - 1];
  return choose(table, args.windows != nullptr ? isa & ~IsaSet{kIsaAmxBf16} : isa);
}

struct Job {
  const LinearArgs* args;
  const LinearVariant* variant;
  Grid grid;
  std::atomic<bool> failed{false};
};

void task(void* arg, int index) {
  auto* job = static_cast<Job*>(arg);
  const LinearArgs& args = *job->args;
  const LinearBlock block = block_of(job->grid, index, args.m, args.n);
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

}  // namespace

bool linear_bf16_supported(const LinearArgs& args, IsaSet isa) {
  return args.m > 0 && args.n > 0 && args.k > 0 && packed_b_bytes(args.k, args.n) != 0 && variant_of(args, isa).native;
}

const char* linear_bf16_variant(const LinearArgs& args, IsaSet isa) { return variant_of(args, isa).name; }

bool linear_bf16(const LinearArgs& args, const Parallel& parallel, IsaSet isa) {
  if (args.m <= 0 || args.n <= 0) return true;
  // Without a K there is nothing to multiply: the reference writes the bias or zeros.
  const LinearVariant& variant = variant_of(args, isa);
  Job job{&args, &variant, choose_grid(args.m, args.n, workers_for(args.m, args.n, args.k, parallel))};
  parallel(static_cast<int>(job.grid.rows * job.grid.panels), task, &job);
  return !job.failed.load(std::memory_order_relaxed);
}

}  // namespace ipexrun::kernels
