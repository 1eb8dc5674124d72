// Selection: stock against candidates on the user's real calls. Torch-free; docs/decisions/0003-selection.md gives the reasons.
//
// While a site explores, a candidate runs beside what answers the user: stock, and after the first race that stock lost, its winner. From
// a candidate a site goes back to stock only by a roll-back. No lock is held while stock or a candidate runs.
#pragma once

#include <atomic>
#include <cstdint>

#include "preload/select/clock.h"
#include "preload/select/site.h"

namespace ipexrun::preload {

/// All of it is CPU time of the calling threads: under a quota, or on a busy machine, a thread that stands still loses nothing by
/// exploring. Races compare times of the clock on the wall, which is what the user waits for.
///
/// Exploring may cost at most the larger of a start budget and a share of the time that the tier's ops took so far, plus half of
/// what the choices made so far have saved: a program that gains can afford to look for more, one that does not stops early. Most of
/// the start budget is kept for sites where stock still answers: a site that has a winner looks for a better one out of the rest.
inline constexpr std::int64_t kStartBudgetNs = 250'000'000;
inline constexpr std::int64_t kStartBudgetOfWinnersNs = kStartBudgetNs / 4;
inline constexpr std::int64_t kBudgetShare = 8;    ///< one eighth: 12.5%
inline constexpr std::int64_t kSavedShare = 2;     ///< one half
inline constexpr std::int64_t kThoroughTimes = 4;  ///< --select thorough
inline constexpr std::uint64_t kSampleEvery = 32;  ///< decided sites are timed at one call in this many
inline constexpr std::size_t kRecentSamples = 9;   ///< sampled times of the choice behind a suspicion
inline constexpr double kSuspiciousRatio = 1.15;   ///< choice slower than this times its own past: measured against stock again
inline constexpr int kRecheckPairs = 5;
/// A loss in a disturbed race is not for good: the site explores again after this many calls, then after four times as many.
inline constexpr std::uint64_t kRematchAfterCalls = 256;
inline constexpr int kMaxRematches = 2;

/// A site whose weights do not come again (a program makes new ones for each call) is not worth looking them up: after so many such calls
/// in a row it does that in one call of 16 on average, until a weight is met that is known.
inline constexpr int kStrangersInARow = 64;
inline constexpr std::uint32_t kLeastLeftOut = 8;
inline constexpr std::uint32_t kMostLeftOut = 22;

inline constexpr std::uint64_t kUnknownWeight = ~std::uint64_t{0};

/// What a candidate is prepared for.
enum class Purpose {
  kBeside,  ///< to be timed or checked beside stock
  kAnswer   ///< its result may become the call's
};

enum class Readiness {
  kReady,       ///< may be run and its result returned
  kUnverified,  ///< may be run, but its numbers were not checked yet for this site and weight
  kNotNow,      ///< not for this call (weight not seen often enough, no memory, ...)
  kNever        ///< not at this site, or not for this weight
};

/// One call of the user's program, as selection sees it. `candidate` is never kStock.
class Trial {
 public:
  virtual ~Trial() = default;
  /// Runs stock; its result is the call's unless take() comes later. May throw what stock throws.
  virtual void run_stock() = 0;
  /// Brings about what the candidate needs (a checked and packed weight). Never throws.
  virtual Readiness prepare(int candidate, Purpose purpose) noexcept = 0;
  /// Runs it into memory of our own. False = failed, nothing changed.
  virtual bool run(int candidate) noexcept = 0;
  /// Compares the candidate's last result with stock's last one and remembers the verdict for this site and weight.
  virtual bool verify(int candidate) noexcept = 0;
  /// The candidate's last result becomes the call's.
  virtual void take(int candidate) noexcept = 0;
  /// Looks the weight up and names it: 0 = the op has none, kUnknownWeight = not seen often enough to be one.
  virtual std::uint64_t weight() noexcept = 0;
};

struct SelectorOptions {
  bool timing = true;     ///< false: nothing is explored, stock stays
  bool thorough = false;  ///< exploring may cost kThoroughTimes as much
};

class Selector {
 public:
  /// Called after each decision and roll-back, without a lock.
  using OnDecision = void (*)(Site& site);
  /// Called after each race that leaves others to run at the site: what its loser had made is needed there no more. By the thread that
  /// holds the right to measure, so that it may look at what races at any site.
  using OnRaceOver = void (*)(Site& site);

  Selector(Clock& clock, SelectorOptions options, OnDecision on_decision, OnRaceOver on_race_over = nullptr);

  /// Runs one call; returns whose result the user gets (kStock or the candidate). Throws only what stock throws.
  int call(Site& site, Trial& trial);

  /// Whether call() would run stock and nothing else: it is counted then, and the caller runs stock. Most calls of sites that stock keeps,
  /// whose operators may take no longer than what a Trial is made of.
  [[nodiscard]] bool leaves_to_stock(Site& site) noexcept;

  /// Runs `candidate` where it is ready and accurate, stock elsewhere; no timing.
  int call_forced(Site& site, Trial& trial, int candidate);

  /// Calls in which a candidate was tried beside stock.
  [[nodiscard]] std::uint64_t explorations() const noexcept { return explorations_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::int64_t explored_ns() const noexcept { return explored_ns_.load(std::memory_order_relaxed); }
  /// Time on the wall, of all threads, that calls took beyond what such a call is going to take once nothing is tried any more, as far as
  /// that is known: candidates and checks beside answers, and answers by stock while a faster candidate still races. Who times a row of
  /// calls takes it off.
  [[nodiscard]] std::int64_t beside_ns() const noexcept { return beside_ns_.load(std::memory_order_relaxed); }
  /// Time saved so far: stock's median less the choice's, summed over the calls taken.
  [[nodiscard]] std::int64_t saved_ns() const noexcept { return saved_ns_.load(std::memory_order_relaxed); }
  /// Time of the calls of this thread that a candidate answered, by what such a call took in its race: of any selector, since the thread
  /// began.
  [[nodiscard]] static std::int64_t answered_here_ns() noexcept;
  [[nodiscard]] std::int64_t tier_ns() const noexcept { return tier_ns_.load(std::memory_order_relaxed); }

  /// Whether exploring may cost this much more now, and that it did: for what is measured outside of races. CPU time of the calling thread.
  [[nodiscard]] bool can_afford(std::int64_t cpu_ns) const noexcept { return may_explore(cpu_ns); }
  void charge(std::int64_t cpu_ns) noexcept { explored_ns_.fetch_add(cpu_ns, std::memory_order_relaxed); }

  /// In a forked child: no exploration any more; decided sites stay decided.
  void stop_exploring() noexcept;

 private:
  class Claim;
  int run_decided(Site& site, Trial& trial, int choice);
  static void note_failure(Site& site) noexcept;
  int answer(Site& site, Trial& trial);
  void take(Site& site, Trial& trial, int choice);
  int check_first(Site& site, Trial& trial, int candidate);
  int explore(Site& site, Trial& trial);
  int recheck(Site& site, Trial& trial, int choice);
  int timed_stock(Site& site, Trial& trial);
  struct Answered {
    int choice;
    std::int64_t cpu_ns;  ///< what the answer alone cost; of a candidate, time on the wall
    std::int64_t wall_ns;
  };
  Answered run_pair(Site& site, Trial& trial, int challenger, bool unverified, std::int64_t lookup_ns);
  void judge_pair(Site& site, Trial& trial, bool check, std::int64_t rival_ns, std::int64_t challenger_ns);
  void finish_race(Site& site, RaceResult result);
  struct StockTime {
    std::int64_t wall_ns;
    std::int64_t cpu_ns;
  };
  StockTime time_stock(Site& site, Trial& trial);
  static std::int64_t predicted_ns(const Site& site);
  void note_beside(const Site& site, std::int64_t start_ns, std::int64_t answer_ns) noexcept;
  std::int64_t time_candidate(Trial& trial, int candidate);
  void decide(Site& site);
  void rematch(Site& site);
  void note_sample(Site& site, std::int64_t taken_ns);
  [[nodiscard]] bool may_explore(std::int64_t predicted_ns, std::int64_t start_ns = kStartBudgetNs) const noexcept;
  [[nodiscard]] bool may_race(const Site& site) const noexcept;
  static bool is_probe(Site& site, std::uint64_t weight);
  static void note_stranger(Site& site, bool stranger);

  Clock& clock_;
  SelectorOptions options_;
  OnDecision on_decision_;
  OnRaceOver on_race_over_;
  std::atomic<bool> exploring_allowed_;
  std::atomic<bool> claimed_{false};
  std::atomic<std::uint64_t> explorations_{0};
  std::atomic<std::int64_t> explored_ns_{0};
  std::atomic<std::int64_t> beside_ns_{0};
  std::atomic<std::int64_t> tier_ns_{0};
  std::atomic<std::int64_t> saved_ns_{0};
};

}  // namespace ipexrun::preload
