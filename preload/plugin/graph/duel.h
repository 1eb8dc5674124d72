// Which of two to five ways a step takes: they are timed on the runs of steps of one kind, in turn, and the fastest one stays. For kernels
// that are right alike, between which no rule by sizes was found to hold on every machine. A step's first run of a way makes a pack of its
// own weight and does not count: of many layers of one size each has one to make, and no pack is made again in the calls that follow. A
// winner is remembered for processes to come (DuelMemory): there the first step takes it at once, where it has as many ways to choose
// among.
//
// Thread rule: any number of threads may run one. What others do on the machine meanwhile hits all ways; the least of each one's times
// counts.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace ipexrun::preload::graph {

/// The ways that one step has been through: what they need of its weight is there.
class WaysTried {
 public:
  WaysTried() = default;
  WaysTried(const WaysTried& other) noexcept
      : ways_(other.ways_.load(std::memory_order_relaxed)), last_(other.last_.load(std::memory_order_relaxed)) {}
  WaysTried& operator=(const WaysTried&) = delete;
  ~WaysTried() = default;

  [[nodiscard]] bool has(int way) const noexcept { return (ways_.load(std::memory_order_relaxed) >> way & 1u) != 0; }
  void add(int way) noexcept {
    ways_.fetch_or(1u << way, std::memory_order_relaxed);
    last_.store(way, std::memory_order_relaxed);
  }
  /// The one that was added last; -1: none.
  [[nodiscard]] int last() const noexcept { return last_.load(std::memory_order_relaxed); }
  void remove(int way) noexcept { ways_.fetch_and(~(1u << way), std::memory_order_relaxed); }
  /// True once. Packs of ways that lost are given back then, and never again: for calls of another size, in turn with these, they may have
  /// won.
  [[nodiscard]] bool forget() noexcept { return (ways_.fetch_or(kForgot, std::memory_order_relaxed) & kForgot) == 0; }

 private:
  static constexpr unsigned kForgot = 1u << 31;

  std::atomic<unsigned> ways_{0};
  std::atomic<int> last_{-1};
};

/// What runs of one duel have in common.
struct DuelKey {
  std::int64_t kind = 0;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t detail = 0;
  int threads = 0;

  bool operator==(const DuelKey&) const = default;
};

/// Who won, of how many ways; `way` -1: not known.
struct DuelResult {
  int way = -1;
  int ways = 0;
  std::int64_t first_ns = 0;  ///< the least time of way 0, 0: it was not run,
  std::int64_t ns = 0;        ///< and that of the winner
};

/// Seconds for which a result that came out so many times in a row is taken over: a day, twice as long each further time. It may have been
/// what else the machine did, and is raced again by the first process after that.
constexpr std::int64_t duel_trust_seconds(std::int64_t times) noexcept {
  constexpr std::int64_t kDay = 24 * 3600;
  constexpr std::int64_t kMostDoublings = 7;  // 128 days; decisions are forgotten after 90
  return kDay << (times <= 1 ? 0 : times - 1 < kMostDoublings ? times - 1 : kMostDoublings);
}

/// Other processes' results. Asked once a duel of this process, told once; neither throws.
struct DuelMemory {
  DuelResult (*recall)(const DuelKey& key) noexcept = nullptr;
  void (*remember)(const DuelKey& key, const DuelResult& result) noexcept = nullptr;
};

class Duel {
 public:
  static constexpr int kMostWays = 6;

  /// Before its first run. `key` outlives it.
  void remember_in(const DuelKey* key, const DuelMemory& memory) noexcept {
    key_ = key;
    memory_ = memory;
    if (memory_.recall != nullptr) known_ = memory_.recall(*key);
  }

  /// Of a duel of `ways` ways, from 0 on, for a step that has been through `tried`: one that nobody took yet; else of its own the one with
  /// the fewest runs that count, while any is wanted; else the one that was begun least. The winner, once there is one, whatever `ways`.
  [[nodiscard]] int way(int ways, const WaysTried& tried) noexcept;
  /// It cannot be taken.
  [[nodiscard]] bool is_out(int way) const noexcept { return out_[static_cast<std::size_t>(way)].load(std::memory_order_relaxed); }
  /// -1: none yet.
  [[nodiscard]] int winner() const noexcept { return winner_.load(std::memory_order_acquire); }
  [[nodiscard]] bool decided() const noexcept { return winner() >= 0; }
  /// Whether no step has run that way to its end yet.
  [[nodiscard]] bool is_new(int way) const noexcept { return begun_[static_cast<std::size_t>(way)].load(std::memory_order_relaxed) == 0; }
  /// A run that took `way` of `ways` was over after so long; `counts`: the step had been through it before.
  void took(int way, int ways, std::int64_t ns, bool counts) noexcept;
  /// It cannot be taken, also where it had won.
  void failed(int way, int ways) noexcept;

 private:
  static constexpr int kRuns = 4;  ///< of each way that count
  static constexpr std::int64_t kLongNs =
      20'000'000;                          ///< of such runs, each of which takes of the program's time as much as thousands of others,
  static constexpr int kLongRuns = 2;      ///< so many,
  static constexpr double kFar = 1.25;     ///< and one where it took so many times as long as another way's
  static constexpr double kFaster = 0.97;  ///< of way 0's time, for another to win

  void decide(int ways) noexcept;
  /// Of the ways that were timed, the fastest one's; 0: none was.
  [[nodiscard]] std::int64_t best_ns(int ways) const noexcept;
  /// Runs of that way that are to count.
  [[nodiscard]] int wanted(int way, int ways) const noexcept;

  std::array<std::atomic<int>, kMostWays> begun_{};  ///< first runs of steps
  std::array<std::atomic<int>, kMostWays> runs_{};   ///< that count
  std::array<std::atomic<std::int64_t>, kMostWays> least_{};
  std::array<std::atomic<bool>, kMostWays> out_{};
  std::atomic<int> winner_{-1};
  const DuelKey* key_ = nullptr;
  DuelMemory memory_;
  DuelResult known_;
};

/// Runs of the process so far that were part of a duel: what was timed around them says little.
std::uint64_t duel_runs() noexcept;

/// Nanoseconds by which this thread's runs of ways other than the best one known by then took longer than that: what a program of steps
/// took because its ways are still being chosen. The first run of a duel, beside which nothing is known, adds none.
std::int64_t duel_excess_here_ns() noexcept;

/// Before the first duel of the process.
void set_duel_memory(const DuelMemory& memory) noexcept;

/// The process's duel of that key, for good; null where there are too many.
Duel* duel_of(const DuelKey& key) noexcept;

}  // namespace ipexrun::preload::graph
