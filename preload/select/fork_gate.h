// A fork strikes no candidate in the middle of its work. The child of a process with threads has the calling thread alone; what another
// thread was about to finish, it waits for, for ever: a compiled kernel that oneDNN's cache promises, for one. Stock's float32 products
// do not go through that cache, ours may, so a fork waits a moment for the candidates under way.
#pragma once

#include <atomic>
#include <cstdint>

#include "preload/select/clock.h"

namespace ipexrun::preload {

inline constexpr std::int64_t kForkPatienceNs = 1'000'000'000;  ///< a fork waits no longer; its child then stays stock

class ForkGate {
 public:
  /// One call's right to run candidates; false while a fork is under way, when the call is stock's. Never waits.
  class Passage {
   public:
    explicit Passage(ForkGate& gate) noexcept : gate_(gate) {
      gate_.inside_.fetch_add(1);
      if (gate_.forks_.load() == 0) return;
      gate_.inside_.fetch_sub(1);
      held_ = false;
    }
    ~Passage() {
      if (held_) gate_.inside_.fetch_sub(1);
    }
    Passage(const Passage&) = delete;
    Passage& operator=(const Passage&) = delete;
    explicit operator bool() const noexcept { return held_; }

   private:
    ForkGate& gate_;
    bool held_ = true;
  };

  /// Before a fork: no passage from now on, and a wait for those that are held.
  void close(Clock& clock) noexcept;
  void open_in_parent() noexcept { forks_.fetch_sub(1); }
  /// Passages of threads that the child does not have are gone. Where one was held still, what it worked on is half done: closed for good.
  void open_in_child() noexcept;

 private:
  alignas(64) std::atomic<int> inside_{0};
  std::atomic<int> forks_{0};
};

}  // namespace ipexrun::preload
