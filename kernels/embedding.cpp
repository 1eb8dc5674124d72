// Cuts the bags of a call among the workers. Compiled for the base instruction set.
#include "kernels/embedding.h"

#include <algorithm>
#include <atomic>

#include "kernels/choose.h"
#include "kernels/dispatch.h"

namespace ipexrun::kernels {
namespace {

/// Below this many elements a call is shorter than waking a second worker.
constexpr std::int64_t kSerialElements = 1 << 14;

struct Job {
  const EmbeddingBagArgs* args;
  const EmbeddingVariant* variant;
  std::int64_t parts;
  std::atomic<bool> failed{false};
};

void task(void* arg, int part) {
  auto* job = static_cast<Job*>(arg);
  const std::int64_t begin = job->args->bags * part / job->parts;
  const std::int64_t end = job->args->bags * (part + 1) / job->parts;
  if (!job->variant->bags(*job->args, begin, end)) job->failed.store(true, std::memory_order_relaxed);  // run() of Parallel orders it
}

std::int64_t offset(const EmbeddingBagArgs& args, std::int64_t i) {
  return args.wide ? static_cast<const std::int64_t*>(args.offsets)[i] : static_cast<const std::int32_t*>(args.offsets)[i];
}

}  // namespace

bool embedding_bag(const EmbeddingBagArgs& args, const Parallel& parallel, IsaSet isa) {
  if (args.bags <= 0) return args.count == 0;
  if (offset(args, 0) != 0 || (args.has_end && offset(args, args.bags) != args.count)) return false;
  Job job{&args, &choose(embedding_variants(), isa), 1};
  if (parallel.run != nullptr && args.columns > kSerialElements / (args.count + args.bags))
    job.parts = std::min<std::int64_t>(args.bags, parallel.threads);
  parallel(static_cast<int>(job.parts), task, &job);
  return !job.failed.load(std::memory_order_relaxed);
}

bool embedding_bag_supported(IsaSet isa) { return choose(embedding_variants(), isa).needs != 0; }

const char* embedding_bag_variant(IsaSet isa) { return choose(embedding_variants(), isa).name; }

}  // namespace ipexrun::kernels
