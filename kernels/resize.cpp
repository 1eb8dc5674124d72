// Shares the rows of the output among the workers. Compiled for the base instruction set.
#include "kernels/resize.h"

#include <algorithm>
#include <atomic>

#include "kernels/choose.h"
#include "kernels/dispatch.h"
#include "kernels/packed.h"
#include "kernels/scratch.h"

namespace ipexrun::kernels {
namespace {

/// Below this many elements written a call is shorter than waking a second worker.
constexpr std::int64_t kSerialElements = 1 << 14;

struct Job {
  const ResizeArgs* args;
  const ResizeVariant* variant;
  std::int64_t parts;
  std::atomic<bool> failed{false};
};

/// A row of the input with two vectors behind it, places relative to the vector where they begin, stretched rows, a row of the result.
std::size_t scratch_bytes(const ResizeArgs& args) {
  const std::int64_t row = ceil_div(args.across.size, kResizePadding) * kResizePadding + 2 * kResizePadding;
  return static_cast<std::size_t>(row + args.across.pitch * (args.across.taps + kMaxResizeTaps + 2)) * sizeof(float);
}

void task(void* arg, int part) {
  auto* job = static_cast<Job*>(arg);
  void* scratch = thread_scratch(scratch_bytes(*job->args));
  if (scratch == nullptr) {
    job->failed.store(true, std::memory_order_relaxed);  // run() of Parallel orders it before our read
    return;
  }
  const std::int64_t rows = job->args->planes * job->args->down.outputs;
  job->variant->run(*job->args, rows * part / job->parts, rows * (part + 1) / job->parts, scratch);
  release_large_scratch();
}

}  // namespace

bool resize(const ResizeArgs& args, const Parallel& parallel, IsaSet isa) {
  const std::int64_t rows = args.planes * args.down.outputs;
  if (rows <= 0 || args.across.outputs <= 0) return true;
  Job job{&args, &choose(resize_variants(), isa), 1};
  if (parallel.run != nullptr && rows * args.across.outputs > kSerialElements) job.parts = std::min<std::int64_t>(rows, parallel.threads);
  parallel(static_cast<int>(job.parts), task, &job);
  return !job.failed.load(std::memory_order_relaxed);
}

bool resize_supported(IsaSet isa) { return choose(resize_variants(), isa).needs != 0; }

const char* resize_variant(IsaSet isa) { return choose(resize_variants(), isa).name; }

}  // namespace ipexrun::kernels
