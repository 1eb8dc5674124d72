// Shares the rows among the workers and gives each its scratch. Compiled for the base instruction set.
#include "kernels/normalize.h"

#include <atomic>

#include "kernels/choose.h"
#include "kernels/dispatch.h"
#include "kernels/packed.h"
#include "kernels/scratch.h"

namespace ipexrun::kernels {
namespace {

/// Below this many elements a call is shorter than waking a second worker.
constexpr std::int64_t kSerialElements = 1 << 14;

template <typename Args>
struct Job {
  const Args* args;
  void (*run)(const Args& args, std::int64_t row_begin, std::int64_t row_end, float* scratch);
  std::size_t scratch_bytes;
  std::int64_t parts;
  std::atomic<bool> failed{false};
};

template <typename Args>
void task(void* arg, int part) {
  auto* job = static_cast<Job<Args>*>(arg);
  auto* scratch = job->scratch_bytes == 0 ? nullptr : static_cast<float*>(thread_scratch(job->scratch_bytes));
  if (scratch == nullptr && job->scratch_bytes != 0) {
    job->failed.store(true, std::memory_order_relaxed);  // run() of Parallel orders it before our read
    return;
  }
  const std::int64_t rows = job->args->rows;
  job->run(*job->args, rows * part / job->parts, rows * (part + 1) / job->parts, scratch);
  release_large_scratch();
}

template <typename Args>
bool share(const Args& args, decltype(Job<Args>::run) run, std::int64_t rows_of_scratch, const Parallel& parallel) {
  if (args.rows <= 0 || args.columns <= 0) return true;
  const std::int64_t padded = ceil_div(args.columns, kNormalizePadding) * kNormalizePadding;
  Job<Args> job{&args, run, static_cast<std::size_t>(rows_of_scratch * padded) * sizeof(float), 1};
  if (parallel.run != nullptr && args.columns > kSerialElements / args.rows) {
    job.parts = args.rows < parallel.threads ? args.rows : parallel.threads;
  }
  parallel(static_cast<int>(job.parts), task<Args>, &job);
  return !job.failed.load(std::memory_order_relaxed);
}

}  // namespace

bool softmax(const SoftmaxArgs& args, const Parallel& parallel, IsaSet isa) {
  return share(args, choose(normalize_variants(), isa).softmax, 1, parallel);
}

bool layer_norm(const NormArgs& args, const Parallel& parallel, IsaSet isa) {
  return share(args, choose(normalize_variants(), isa).layer_norm, 2, parallel);
}

bool rms_norm(const NormArgs& args, const Parallel& parallel, IsaSet isa) {
  return share(args, choose(normalize_variants(), isa).rms_norm, 2, parallel);
}

bool group_norm(const GroupNormArgs& args, const Parallel& parallel, IsaSet isa) {
  return share(args, choose(normalize_variants(), isa).group_norm, 0, parallel);
}

bool scale_channels(const ChannelScaleArgs& args, const Parallel& parallel, IsaSet isa) {
  return share(args, choose(normalize_variants(), isa).scale_channels, args.adjacent ? 2 : 0, parallel);
}

bool normalize_supported(IsaSet isa) { return choose(normalize_variants(), isa).needs != 0; }

const char* normalize_variant(IsaSet isa) { return choose(normalize_variants(), isa).name; }

}  // namespace ipexrun::kernels
