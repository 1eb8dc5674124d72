// Drift: how far reduced precision in many ops together moves the results of a whole pass of a program.
//
// The accuracy rule of one op says nothing about fifty of them in a row. So a candidate that rounds more than stock does is not used,
// although its op was found accurate, before a whole pass was computed with it beside stock (plugin/drift_check.h runs it; the user gets
// stock's results). Where the pass ends too far away, the uses that come first are left to stock, as few as suffice: what is rounded early
// has the longest way to grow. Torch-free; docs/decisions/0013-drift.md gives the reasons.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "preload/select/small_samples.h"

namespace ipexrun::preload {

/// e() of a pass's results, RMS(c - stock) / RMS(stock) of each sample: two thirds of what the accuracy rule grants a whole module, because
/// later inputs differ from those of the pass that was looked at.
inline constexpr double kMaxDrift = 2e-2;
inline constexpr std::uint64_t kLongestPass = 1 << 16;  ///< calls after which a pass counts as one that never ends
inline constexpr std::uint64_t kLeastCalls = 16;        ///< of a pass that is checked by itself
inline constexpr std::uint64_t kCallsOfShort =
    48;  ///< of a check of shorter ones that hang together: steps of a recurrence or of an integrator, which a program judges by several
inline constexpr std::uint64_t kRecheckFactor = 4;          ///< the next check after a good one, in calls of the process
inline constexpr int kMaxAborts = 3;                        ///< checks that came to no end, after which no more are begun
inline constexpr std::int64_t kLongWaitNs = 1'000'000'000;  ///< lost by waiting, and four times the price of a check: long
inline constexpr int kMostLooks = 16;  ///< checks of the same uses, where one has too few samples to say anything of others

/// A check that takes less is one of short calls, which looking for passes delays; in longer ones that is nothing, and finding them anew
/// takes several.
inline constexpr std::int64_t kShortCheckNs = 10'000'000;

inline constexpr std::uint32_t kMostSpan = 32;  ///< of uses of one weight in a pass

inline constexpr std::uint64_t kAfterWeights = std::uint64_t{1} << 40;  ///< marks from here on are of ops without weights

inline constexpr std::size_t kSearchParts = 8;  ///< the search for how many first uses to leave ends at an eighth of them
/// What n roundings of one size add up to is the root of n times one of them: where one alone would be so many times too far, half of them
/// are hardly good, and the last eighth is asked at once. Likewise where a choice was made among them, which counts as infinitely far.
inline constexpr double kHopelessAlone = 4;

/// kHeld: left out of the next checks, to see whether the others pass: kTried.
enum class DriftVerdict : int { kUnknown, kFine, kTooFar, kHeld, kTried };

/// Kept with each weight, and with each site of an op without weights. Any thread.
struct DriftMark {
  std::atomic<DriftVerdict> verdict{DriftVerdict::kUnknown};
  std::atomic<std::uint32_t> counted_in{0};  ///< epoch of the ledger in which it was counted as waiting
};

/// One use that a checked pass made.
struct DriftUse {
  DriftMark* mark = nullptr;
  std::shared_ptr<const void> keeps;  ///< keeps the mark
};

/// Calls of a check of passes of so many. `apart`: they take long and nothing is known to come from one of them into the next, so that two
/// show whether that is so, and what the first one ends with is what the program sees.
constexpr std::uint64_t calls_of_check(std::uint64_t pass_calls, bool apart) noexcept {
  if (pass_calls >= kLeastCalls) return pass_calls;
  const std::uint64_t pass = pass_calls > 0 ? pass_calls : 1;
  return apart ? 2 * pass : (kCallsOfShort + pass - 1) / pass * pass;
}

inline constexpr std::uint64_t kMostCallsOfGrowth = 16 * kCallsOfShort;  ///< of a check whose errors still grow
inline constexpr std::int64_t kMostNsOfGrowth = 300'000'000;             ///< likewise, in what is computed beside the program

/// Whether state that is carried from pass to pass is further off in late passes than in early ones: the last quarter and the second one,
/// which a steady growth sets 2.3 times apart, a random walk 1.5 times, and state that forgets what it was not at all once the passes are
/// many.
[[nodiscard]] bool grows_from_pass_to_pass(const std::vector<double>& errors) noexcept;

/// Finds where the passes of one thread begin. Weights are numbered in the order in which the program met them first, so the lowest
/// number that keeps coming back belongs to the first layer of what runs now.
class PassFinder {
 public:
  /// One call; `mark` is the number of its weight, 0 where that may not begin a pass. Returns the length in calls of the pass that ended
  /// right before this call, 0 if none did, or if none had ended before that one. With another `epoch` than before everything starts anew:
  /// calls in between were not shown. `span`: the mark comes so many times in a pass. Where it comes back after another number of calls
  /// than the time before (a network that is run forth and back has its first layer at both ends), both together are the length.
  std::uint64_t call(std::uint64_t mark, std::uint32_t epoch, std::uint32_t span) noexcept;

  /// Passes begin at this mark, whatever its number: a layer that was first met late (its first inputs were too small, say) may well be
  /// the first one. Until a pass with it comes to no end.
  void prefer(std::uint64_t mark) noexcept { preferred_ = mark; }
  [[nodiscard]] bool prefers() const noexcept { return preferred_ != 0; }

 private:
  std::uint32_t epoch_ = 0;
  std::uint64_t calls_ = 0;
  std::uint64_t first_ = 0;
  std::uint64_t preferred_ = 0;
  std::uint64_t start_ = 0;
  std::uint32_t seen_ = 0;    ///< times that first_ came since start_
  std::uint64_t before_ = 0;  ///< length of the pass before; 0: none yet
};

/// Threads that live for one pass (a server's, one for each request) never see one come back: what a thread did in its life is a pass where
/// two in a row that began alike did the same. Any thread; no lock.
class ThreadPasses {
 public:
  /// A thread ended that made so many calls from the first one on that may begin a pass.
  void ended(std::uint64_t mark, std::uint64_t calls) noexcept;
  /// A thread's first call of that kind: the length in calls of the pass that it begins; 0 where none is known.
  [[nodiscard]] std::uint64_t length(std::uint64_t mark) const noexcept;
  /// As if none had begun so: a check of this kind came to its end, and other kinds are to have their turn.
  void forget(std::uint64_t mark) noexcept { last_[mark % kKinds].store(0, std::memory_order_relaxed); }

 private:
  static constexpr std::size_t kKinds = 64;  ///< of threads that are known at a time: by the remainder of their mark

  std::array<std::atomic<std::uint64_t>, kKinds> last_{};  ///< of each kind: mark, calls, whether the one before was the same
};

struct DriftCounts {
  std::uint64_t checks = 0;   ///< that came to an end
  std::uint64_t failed = 0;   ///< of these
  std::uint64_t aborted = 0;  ///< that did not
  std::uint64_t waiting = 0;  ///< uses that wait for a check
  std::uint64_t fine = 0;
  std::uint64_t too_far = 0;
  double last = 0;  ///< drift of the last check
};

/// What is known of the whole process. Any thread; no lock.
class DriftLedger {
 public:
  /// A call that may not run before a check; it would save so much time.
  void wait(DriftMark& mark, std::int64_t saving_ns) noexcept;

  /// Whether passes are to be looked for, at this many calls of the process. The only question on the way of every call. Not from a begin()
  /// of a short check that came too early until what waits has lost the price that was named there: looking costs each call, and the loss
  /// may never come.
  [[nodiscard]] bool watching(std::uint64_t calls) const noexcept {
    if (calls < watch_from_.load(std::memory_order_relaxed)) return false;
    return lost_ns_.load(std::memory_order_relaxed) >= rests_until_lost_ns_.load(std::memory_order_relaxed) ||
           waiting_.load(std::memory_order_relaxed) == 0;
  }

  /// PassFinder's epoch: another one after each check, and after each time in which calls were not watched.
  [[nodiscard]] std::uint32_t finder_epoch() const noexcept {
    return epoch_.load(std::memory_order_relaxed) + rests_.load(std::memory_order_relaxed);
  }

  /// Another one after each check.
  [[nodiscard]] std::uint32_t epoch() const noexcept { return epoch_.load(std::memory_order_relaxed); }

  /// At the end of a pass: whether the next one is to be checked. True claims the check for the caller, who ends it by finish(), abort() or
  /// postpone(). A check is worth its price (time of one pass, about) once waiting calls have lost as much for want of it: so a program
  /// loses at most twice what it would have by knowing beforehand how long it runs (Karlin et al., "Competitive snoopy caching", 1988).
  /// What a check leaves to be looked at again, and another look when nobody waits, need no such loss where exploring has means of its own
  /// (`can_afford`); `pinned` uses never do.
  bool begin(std::int64_t price_ns, bool can_afford, bool pinned) noexcept;

  /// How many times the weight that begins a pass comes in it, as far as is known: layers share weights. Grows when a check met none of the
  /// uses that waited, so that it saw part of a pass only.
  [[nodiscard]] std::uint32_t span() const noexcept { return span_.load(std::memory_order_relaxed); }

  /// By the holder of the claim: what of a check's cost was not earned by waiting, and is charged as exploring.
  [[nodiscard]] std::int64_t unearned(std::int64_t cost_ns) const noexcept { return std::max<std::int64_t>(cost_ns - earned_ns_, 0); }

  /// Whether a use of this verdict may run within a check. While a search runs, uses that are new wait for its end: they would blur it.
  [[nodiscard]] bool may_be_tried(DriftVerdict verdict) const noexcept {
    if (verdict == DriftVerdict::kUnknown) return !searching_.load(std::memory_order_relaxed);
    return verdict == DriftVerdict::kFine || verdict == DriftVerdict::kTried;
  }

  /// `uses`: those that the pass made, in order, each once. `errors`: of its results; not finite if NaN or infinities moved. Good: all
  /// of them may run from now on. Good, but of too few samples to say that of others (small_samples.h): another pass is looked at, up to
  /// kMostLooks, as long as they have samples that are new and may still show it, and then it counts as too far. Too far: among those that
  /// no good pass had yet (all, where there are none) the shortest row of first ones is searched without which a pass is good, by halving
  /// (from the end, where even one use alone would be far beyond the bound), a check each; these stay with stock. May throw std::bad_alloc.
  void finish(const std::vector<DriftUse>& uses, const SampleErrors& errors, std::uint64_t calls);
  void abort() noexcept;
  /// The check began at the wrong place: another one at the next pass, and what was earned beyond `cost_ns` is kept for it.
  void postpone(std::int64_t cost_ns) noexcept;

  /// Some use is kept from rounding for good, or for long. The first question of every call, so few words.
  [[nodiscard]] bool keeps_some() const noexcept { return too_far_.load(std::memory_order_relaxed) > 0 || given_up() || waits_long(); }
  /// No check comes to an end in this program, and no more are begun: what was not let through never will be.
  [[nodiscard]] bool given_up() const noexcept { return aborts_in_a_row_.load(std::memory_order_relaxed) >= kMaxAborts; }
  /// So much was lost for want of a check, and none came to an end, that waiting has no end in sight (no pass was seen to come back): what
  /// does not round is worth a race meanwhile.
  [[nodiscard]] bool waits_long() const noexcept {
    return lost_since_end_ns_.load(std::memory_order_relaxed) >= long_wait_ns_.load(std::memory_order_relaxed);
  }

  /// What one pass of this program computed is used in the next one: a state, or results that it compares. Short ones are judged by
  /// several.
  void note_hang_together() noexcept { hang_together_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool hang_together() const noexcept { return hang_together_.load(std::memory_order_relaxed); }

  /// In this program results of modules in bf16 are near enough, and what is made of them outside is not: captured modules keep float32,
  /// too.
  void note_beyond_modules() noexcept { beyond_modules_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool too_far_beyond_modules() const noexcept { return beyond_modules_.load(std::memory_order_relaxed); }

  [[nodiscard]] DriftCounts counts() const noexcept;

 private:
  void release() noexcept;
  void count_anew() noexcept;
  bool wants_another_look(const SampleErrors& errors);
  void conclude(double drift, std::uint64_t next_from) noexcept;
  /// `drift`: of the check that just ended.
  void search(bool good, double drift);
  void note_yield(const std::vector<DriftUse>& uses) noexcept;
  void settle(DriftMark& mark, DriftVerdict verdict) noexcept;

  std::atomic<std::uint64_t> watch_from_{~std::uint64_t{0}};
  std::atomic<std::uint32_t> epoch_{1};
  std::atomic<std::uint64_t> waiting_{0};
  std::atomic<std::uint64_t> waiting_before_{0};      ///< at the end of the pass before
  std::atomic<std::int64_t> lost_ns_{0};              ///< by calls that wait, since the last check began
  std::atomic<std::int64_t> rests_until_lost_ns_{0};  ///< passes are not looked for before
  std::atomic<std::uint32_t> rests_{0};
  std::atomic<std::int64_t> lost_since_end_ns_{0};  ///< by calls that wait, since the last check came to an end
  std::atomic<std::int64_t> long_wait_ns_{kLongWaitNs};
  std::atomic<int> barren_{0};  ///< checks in a row that met nothing that waited: each doubles the price of the next
  std::atomic<std::uint32_t> span_{1};
  std::atomic<bool> claimed_{false};
  std::atomic<bool> searching_{false};
  std::atomic<bool> beyond_modules_{false};
  std::atomic<bool> hang_together_{false};
  std::atomic<bool> again_{false};  ///< the last check failed: what is left of its uses is checked at once
  std::atomic<std::uint64_t> checks_{0};
  std::atomic<std::uint64_t> failed_{0};
  std::atomic<std::uint64_t> aborted_{0};
  std::atomic<int> aborts_in_a_row_{0};
  std::atomic<std::uint64_t> fine_{0};
  std::atomic<std::uint64_t> too_far_{0};
  std::atomic<double> last_{0};

  // Touched only by the thread that holds the claim.
  std::int64_t earned_ns_ = 0;  ///< lost by waiting until this check
  std::uint64_t waited_ = 0;    ///< uses that did
  SampleErrors looks_;          ///< of passes with the same uses
  int look_count_ = 0;
  std::vector<DriftUse> searched_;  ///< empty: no search
  std::size_t low_ = 0;             ///< without so many of the first ones a pass was too far away
  std::size_t high_ = 0;            ///< without so many it was good, or none would be left
  std::size_t held_ = 0;            ///< left out now
};

}  // namespace ipexrun::preload
