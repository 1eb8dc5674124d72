// How much of a program's time may go into trying a form of ours beside what the user gets: in a few calls and seconds as much as it takes,
// then a share, unless the form leads. A form that gains little is decided by many pairs, and a model of long calls would take twice as
// long for a minute. compiler.py bounds graphs of TorchDynamo likewise.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace ipexrun::preload {

/// tried() and restart() by one thread at a time, rests() by any.
class TrialBounds {
 public:
  static constexpr int kFreeCalls = 4;  ///< of a form
  static constexpr int kChoosing = 3;   ///< times as many where kernels inside it are still being chosen, so that it does not lead yet
  static constexpr std::int64_t kFreeNs = 3'000'000'000;  ///< of all forms
  static constexpr std::int64_t kShareOf = 20;            ///< one part in so many
  static constexpr double kLeads = 0.95;                  ///< of stock's time, in their best calls: it may well win

  /// A call in which stock took `stock_ns`, ours `mine_ns` (0: what it took says nothing, since it packed), and all that is beside stock
  /// `beside_ns`.
  void tried(std::int64_t stock_ns, std::int64_t mine_ns, std::int64_t beside_ns, bool choosing, std::int64_t now_ns) noexcept {
    ++calls_;
    beside_ns_ += beside_ns;
    if (mine_ns > 0) {
      stock_ns_ = stock_ns_ == 0 ? stock_ns : std::min(stock_ns_, stock_ns);
      mine_ns_ = mine_ns_ == 0 ? mine_ns : std::min(mine_ns_, mine_ns);
    }
    const bool leads = mine_ns_ > 0 && static_cast<double>(mine_ns_) < kLeads * static_cast<double>(stock_ns_);
    if (calls_ >= kFreeCalls * (choosing ? kChoosing : 1) && beside_ns_ > kFreeNs && !leads)
      rest_until_ns_.store(now_ns + beside_ns * kShareOf, std::memory_order_relaxed);
  }
  /// Another form is tried from now on.
  void restart() noexcept {
    calls_ = 0;
    stock_ns_ = mine_ns_ = 0;
    rest_until_ns_.store(0, std::memory_order_relaxed);
  }
  [[nodiscard]] bool rests(std::int64_t now_ns) const noexcept { return now_ns < rest_until_ns_.load(std::memory_order_relaxed); }

 private:
  int calls_ = 0;
  std::int64_t beside_ns_ = 0;
  std::int64_t stock_ns_ = 0;  // the least of each
  std::int64_t mine_ns_ = 0;
  std::atomic<std::int64_t> rest_until_ns_{0};
};

}  // namespace ipexrun::preload
