// Sites: the kinds of call that selection decides about, and the table that finds one from a call's shape.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "configs/contract/decision.h"
#include "preload/select/drift.h"
#include "preload/select/race.h"

namespace ipexrun::preload {

inline constexpr int kStock = 0;         ///< index of stock among the candidates of a site
inline constexpr int kMaxSites = 4096;   ///< a program with more kinds of call than this keeps stock for the rest
inline constexpr int kProbeWeights = 8;  ///< weights that a site's race uses; the others wait for its outcome

/// SiteKey in numbers, cheap to build and to compare on every call. `m` is already rounded up to a power of two.
struct SiteId {
  std::uint32_t op = 0;    ///< the caller's numbering of ops
  std::uint32_t form = 0;  ///< the caller's code of dtypes, layouts and bias
  std::int32_t threads = 0;
  std::int64_t batch = 0;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::uint64_t detail = 0;  ///< a digest of what else tells kinds of calls apart (kernel sizes, strides, ...)
  friend bool operator==(const SiteId&, const SiteId&) = default;
};

/// The next power of two, at least 1.
std::int64_t round_up_rows(std::int64_t m);

enum class SiteState : int { kExploring, kDecided };

struct Site {
  SiteId id;
  std::uint32_t number = 0;     ///< position of creation, from 0
  std::string key;              ///< SiteKey::text()
  std::vector<int> candidates;  ///< in the order in which they race; indices from 1, the caller's numbering
  /// Bit c: candidate c is not raced once an earlier one has beaten stock clearly (kClearRatio), because it shares stock's limit.
  std::uint32_t needless_after_clear_win = 0;
  bool must_beat_stock = true;  ///< false: the best accurate candidate is used even where it is not faster
  bool training = false;        ///< calls of training steps: no weight is known, accuracy is checked again now and then
  bool pinned = false;          ///< decided by the user's config: no timing changes it

  std::atomic<SiteState> state{SiteState::kExploring};
  std::atomic<int> choice{kStock};  ///< while exploring: the best one so far
  std::atomic<std::uint64_t> calls{0};
  std::atomic<std::uint64_t> taken{0};
  std::atomic<std::int64_t> stock_ns{0};      ///< median while exploring; before that the last stock call
  std::atomic<std::int64_t> stock_cpu_ns{0};  ///< CPU time of the calling thread in the last stock call that was timed, 0 = none yet
  std::atomic<std::int64_t> choice_ns{0};     ///< median of the choice; once decided stock's, by the ratios of the races
  std::atomic<std::int64_t> expected_ns{0};   ///< what an answer is going to take if the race under way ends as it stands, 0 = no race does
  std::atomic<int> samples{0};
  std::atomic<bool> rechecking{false};  ///< the choice looks slow: the next calls measure it beside stock
  std::atomic<const char*> reason{""};  ///< a word of Decision::reason, a literal

  std::atomic<std::uint64_t> rematch_at{0};  ///< number of the call from which stock's win is put to the test again; 0 = it stands

  /// For ops without a weight: bit c = candidate c was found accurate, bit c + 16 = inaccurate.
  std::atomic<std::uint32_t> verdicts{0};
  DriftMark drift;

  std::atomic<std::uint32_t> left_out{
      0};  ///< calls to come that are left to stock while it explores: no weight of the last ones came again

  std::atomic<std::uint32_t> failures{0};  ///< calls in a row that the choice could not answer
  std::atomic<std::uint32_t> rest{0};      ///< calls to come that are left to stock because of that

  // Touched only by the thread that holds the selector's claim.
  int strangers = 0;     ///< calls in a row whose weight was none that is known
  std::size_t next = 0;  ///< index into candidates of the current challenger
  int best = kStock;
  double gain = 1;  ///< time of `best` over stock's, by ratios of neighbours in time along the races that it came from
  Race race;
  bool warm = false;       ///< the current challenger ran once untimed
  bool clear_win = false;  ///< some challenger beat its rival by kClearRatio
  int inaccurate = 0;
  bool disturbed = false;  ///< a race was lost while the machine was busy with something else
  int rematches = 0;
  std::vector<double> stock_times;
  std::array<std::uint64_t, kProbeWeights> probes{};
  int waited = 0;              ///< calls since a probe weight was met
  std::vector<double> recent;  ///< sampled times of the choice, newest last
  Race recheck;
};

/// Bit c: candidate c answers at `site` or may still race there. While it explores, for the thread that holds the selector's claim.
std::uint32_t needed_candidates(const Site& site) noexcept;

/// Decides `site`, not yet in a table, as an earlier process or the user's config did. `choice` is kStock or one of its candidates.
void settle(Site& site, int choice, const Decision& decision, bool pinned);

/// Lock-free: readers never wait, sites are never freed, so a fork may happen at any moment.
class SiteTable {
 public:
  SiteTable();
  ~SiteTable();
  SiteTable(const SiteTable&) = delete;
  SiteTable& operator=(const SiteTable&) = delete;

  /// Null when there is none yet.
  [[nodiscard]] Site* find(const SiteId& id) const noexcept;
  /// Puts `site` in, or returns the one that another thread put there first; null when the table is full.
  Site* insert(std::unique_ptr<Site> site) noexcept;
  [[nodiscard]] int size() const noexcept { return count_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool full() const noexcept { return size() >= kMaxSites; }

  template <typename Function>
  void for_each(Function visit) const {
    for (const auto& slot : slots_) {
      if (Site* site = slot.load(std::memory_order_acquire)) visit(*site);
    }
  }

 private:
  static constexpr std::size_t kSlots = 2 * kMaxSites;
  std::vector<std::atomic<Site*>> slots_;
  std::atomic<int> count_{0};
};

}  // namespace ipexrun::preload
