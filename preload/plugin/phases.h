// Where the time of training steps goes, for --bench: data loading, forward, backward, optimizer. Seen by an observer of torch's own marks
// (at::RecordFunction): DataLoader's __next__, the nodes of backward passes and Optimizer.step(); forward is the time of top-level module
// calls. Nothing is observed, and nothing costs anything, without --bench.
//
// Thread rule: all functions may be called from any thread; phases of several threads are added up.
#pragma once

#include <cstdint>

namespace ipexrun::preload {

/// Begins to observe; once a process.
void phases_start();

/// A top-level module call ended. `batch`: dimension 0 of its first tensor argument, 0 = unknown.
void phases_note_call(std::uint64_t duration_ns, std::int64_t batch) noexcept;

}  // namespace ipexrun::preload
