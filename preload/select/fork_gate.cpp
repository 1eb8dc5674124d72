#include "preload/select/fork_gate.h"

#include <sched.h>

namespace ipexrun::preload {

void ForkGate::close(Clock& clock) noexcept {
  forks_.fetch_add(1);
  const std::int64_t until = clock.now_ns() + kForkPatienceNs;
  while (inside_.load() != 0 && clock.now_ns() < until) ::sched_yield();
}

void ForkGate::open_in_child() noexcept {
  if (inside_.load() == 0) forks_.store(0);
}

}  // namespace ipexrun::preload
