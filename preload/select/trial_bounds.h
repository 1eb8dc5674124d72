// How much of a program's time may go into trying a form of ours beside what the user gets: in a few calls and seconds as much as it takes,
// then a share, a larger one while the form leads. A form that gains little is decided by many pairs, and a model of long calls would take
// twice as long for a minute. compiler.py bounds graphs of TorchDynamo likewise.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

namespace ipexrun::preload {

/// tried() and restart() by one thread at a time, rests() by any.
class TrialBounds {
 public:
  static constexpr int kFreeCalls = 4;  ///< of a form
  static constexpr int kChoosing = 3;   ///< times as many where kernels inside it are still being chosen, so that it does not lead yet
  static constexpr std::int64_t kFreeNs = 3'000'000'000;  ///< of all forms
  static constexpr std::int64_t kLeadNs = 9'000'000'000;  ///< likewise, where a form leads or chooses kernels
  static constexpr std::int64_t kShareOf = 20;            ///< one part in so many
  static constexpr std::int64_t kLeadShareOf = 5;         ///< likewise, while it leads
  static constexpr double kLeads = 0.95;                  ///< of stock's time, in the middle of its last pairs: it may well win
  static constexpr int kRecent = 6;                       ///< pairs; by single calls a form that is level led for minutes

  /// A call in which stock took `stock_ns`, ours `mine_ns` (0: what it took says nothing, since it packed), and all that is beside stock
  /// `beside_ns`.
  void tried(std::int64_t stock_ns, std::int64_t mine_ns, std::int64_t beside_ns, bool choosing, std::int64_t now_ns) noexcept {
    ++calls_;
    beside_ns_ += beside_ns;
    if (mine_ns > 0)
      ratios_[static_cast<std::size_t>(pairs_++ % kRecent)] =
          static_cast<double>(mine_ns) / static_cast<double>(std::max<std::int64_t>(stock_ns, 1));
    const bool leads = pairs_ > 0 && recent() <= kLeads;
    const bool hopeful = leads || (choosing && calls_ < kFreeCalls * kChoosing);
    if (calls_ >= kFreeCalls && beside_ns_ > (hopeful ? kLeadNs : kFreeNs))
      rest_until_ns_.store(now_ns + beside_ns * (leads ? kLeadShareOf : kShareOf), std::memory_order_relaxed);
  }
  /// Another form is tried from now on.
  void restart() noexcept {
    calls_ = pairs_ = 0;
    rest_until_ns_.store(0, std::memory_order_relaxed);
  }
  [[nodiscard]] bool rests(std::int64_t now_ns) const noexcept { return now_ns < rest_until_ns_.load(std::memory_order_relaxed); }

 private:
  [[nodiscard]] double recent() const {
    std::array<double, kRecent> last = ratios_;
    const int count = std::min(pairs_, kRecent);
    std::sort(last.begin(), last.begin() + count);
    return (last[static_cast<std::size_t>((count - 1) / 2)] + last[static_cast<std::size_t>(count / 2)]) / 2;
  }

  int calls_ = 0;
  int pairs_ = 0;
  std::int64_t beside_ns_ = 0;
  std::array<double, kRecent> ratios_{};
  std::atomic<std::int64_t> rest_until_ns_{0};
};

}  // namespace ipexrun::preload
