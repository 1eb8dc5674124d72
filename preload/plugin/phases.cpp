#include "preload/plugin/phases.h"

#include <ATen/record_function.h>

#include <array>
#include <atomic>
#include <ctime>
#include <memory>
#include <string_view>

#include "configs/contract/event.h"
#include "preload/plugin/tier.h"

namespace ipexrun::preload {
namespace {

enum Phase : int { kData, kForward, kBackward, kOptimizer, kPhases };

/// Sums since the last optimizer step.
struct Sums {
  std::array<std::atomic<std::uint64_t>, kPhases> ns{};
  std::atomic<std::int64_t> samples{0};
  std::atomic<std::int64_t> batches{0};
  std::atomic<std::uint64_t> began_ns{0};  ///< end of the step before, or the first thing seen
  std::atomic<std::uint64_t> explorations{0};
};

Sums& sums() {
  static Sums all;
  return all;
}

constinit thread_local int backward_depth = 0;

std::uint64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
}

void add(Phase phase, std::uint64_t ns) { sums().ns[phase].fetch_add(ns, std::memory_order_relaxed); }

void begin_at(std::uint64_t ns) {
  std::uint64_t none = 0;
  sums().began_ns.compare_exchange_strong(none, ns, std::memory_order_relaxed);
}

struct Seen final : at::ObserverContext {
  Phase phase = kPhases;  ///< kPhases: not counted
  std::uint64_t start_ns = 0;
  std::uint64_t inside_ns = 0;  ///< of an optimizer: forward and backward until it began, which its closure may run
};

std::uint64_t passes_ns() {
  return sums().ns[kForward].load(std::memory_order_relaxed) + sums().ns[kBackward].load(std::memory_order_relaxed);
}

void write_step(std::uint64_t end_ns) {
  Sums& all = sums();
  IpexrunEvent event{};
  event.kind = IPEXRUN_EVENT_STEP;
  event.start_ns = all.began_ns.exchange(end_ns, std::memory_order_relaxed);
  event.duration_ns = end_ns - event.start_ns;
  for (int phase = 0; phase < kPhases; ++phase) {
    event.value[phase] = static_cast<std::int64_t>(all.ns[static_cast<std::size_t>(phase)].exchange(0, std::memory_order_relaxed));
  }
  event.value[4] = all.samples.exchange(0, std::memory_order_relaxed);
  event.value[5] = all.batches.exchange(0, std::memory_order_relaxed);
  const std::uint64_t explorations = exploration_count();
  if (all.explorations.exchange(explorations, std::memory_order_relaxed) != explorations) event.flags = IPEXRUN_CALL_EXPLORING;
  events().write(event, "");
}

std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& function) {
  auto seen = std::make_unique<Seen>();
  if (function.scope() == at::RecordScope::BACKWARD_FUNCTION) {
    if (backward_depth++ == 0) seen->phase = kBackward;
  } else {
    const std::string_view name = function.name();
    if (name.starts_with("Optimizer.step#")) {
      seen->phase = kOptimizer;
      seen->inside_ns = passes_ns();
    } else if (name.starts_with("enumerate(DataLoader)#")) {
      seen->phase = kData;
    }
  }
  seen->start_ns = now_ns();
  if (seen->phase != kPhases) begin_at(seen->start_ns);
  return seen;
}

void leave(const at::RecordFunction& function, at::ObserverContext* context) {
  auto* seen = static_cast<Seen*>(context);
  if (function.scope() == at::RecordScope::BACKWARD_FUNCTION) --backward_depth;
  if (seen == nullptr || seen->phase == kPhases) return;
  const std::uint64_t end = now_ns();
  std::uint64_t taken = end - seen->start_ns;
  if (seen->phase == kOptimizer) taken -= std::min(taken, passes_ns() - seen->inside_ns);
  add(seen->phase, taken);
  if (seen->phase == kData) sums().batches.fetch_add(1, std::memory_order_relaxed);
  if (seen->phase == kOptimizer) write_step(end);
}

}  // namespace

void phases_start() {
  static const at::CallbackHandle handle = at::addGlobalCallback(
      at::RecordFunctionCallback(enter, leave).scopes({at::RecordScope::BACKWARD_FUNCTION, at::RecordScope::USER_SCOPE}));
  static_cast<void>(handle);
}

void phases_note_call(std::uint64_t duration_ns, std::int64_t batch) noexcept {
  if (backward_depth > 0) return;  // computed again for the backward pass, whose time it is
  begin_at(now_ns() - duration_ns);
  add(kForward, duration_ns);
  // A loss module after the model sees the same samples.
  std::int64_t known = sums().samples.load(std::memory_order_relaxed);
  if (batch > known) sums().samples.compare_exchange_strong(known, batch, std::memory_order_relaxed);
}

}  // namespace ipexrun::preload
