// How the workers of a call share what it is made of, each with scratch of its own. For sources that are compiled for the base instruction
// set.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "kernels/parallel.h"
#include "kernels/scratch.h"

namespace ipexrun::kernels {

/// Where the part begins, of `parts` nearly equal ones of [0, count).
inline std::int64_t begin_of(std::int64_t count, std::int64_t part, std::int64_t parts) { return count * part / parts; }

/// One part for each worker, as long as there are so many items; one where the call is too small or has no workers.
inline std::int64_t parts_of(std::int64_t items, bool large, const Parallel& parallel) {
  if (parallel.run == nullptr || !large) return 1;
  return items < parallel.threads ? items : parallel.threads;
}

/// Calls run(part, scratch) for each part; `scratch` has `scratch_bytes`, and is null for none. False when memory for it was short, or run
/// said so of a part.
template <typename Run>
bool share(std::int64_t parts, std::size_t scratch_bytes, const Parallel& parallel, const Run& run) {
  struct Job {
    const Run& run;
    std::size_t scratch_bytes;
    std::atomic<bool> failed{false};
  };
  Job shared{run, scratch_bytes};
  const auto task = [](void* arg, int part) {
    auto* job = static_cast<Job*>(arg);
    void* scratch = job->scratch_bytes == 0 ? nullptr : thread_scratch(job->scratch_bytes);
    const bool enough = scratch != nullptr || job->scratch_bytes == 0;
    if (!enough || !job->run(part, scratch))
      job->failed.store(true, std::memory_order_relaxed);  // run() of Parallel orders it before our read
    // Without scratch of its own, what this thread has may be what the caller took and all parts use.
    if (scratch != nullptr) release_large_scratch();
  };
  parallel(static_cast<int>(parts), task, &shared);
  return !shared.failed.load(std::memory_order_relaxed);
}

}  // namespace ipexrun::kernels
