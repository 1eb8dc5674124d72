// Which of two or three ways a step takes: they are timed on the step's own runs, in turn, and the fastest one stays. For kernels that are right alike,
// between which no rule by sizes was found to hold on every machine.
//
// Thread rule: any number of threads may run one. What others do on the machine meanwhile hits all ways; the least of each one's times counts.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace ipexrun::preload::graph {

class Duel {
 public:
  static constexpr int kMostWays = 3;

  /// Of a duel of `ways` ways, from 0 on: the one that has run least, until one of them won.
  [[nodiscard]] int way(int ways) const noexcept;
  [[nodiscard]] bool decided() const noexcept { return winner_.load(std::memory_order_acquire) >= 0; }
  /// Whether that way has not been run to its end yet.
  [[nodiscard]] bool is_new(int way) const noexcept { return runs_[static_cast<std::size_t>(way)].load(std::memory_order_relaxed) == 0; }
  /// A run that took `way` of `ways` was over after so long. The first of each way packs weights and does not count.
  void took(int way, int ways, std::int64_t ns) noexcept;
  /// It cannot be taken, also where it had won.
  void failed(int way, int ways) noexcept;

 private:
  static constexpr int kRuns = 4;          ///< of each way, besides the first
  static constexpr double kFaster = 0.97;  ///< of way 0's time, for another to win

  void decide(int ways) noexcept;

  std::array<std::atomic<int>, kMostWays> runs_{};
  std::array<std::atomic<std::int64_t>, kMostWays> least_{};
  std::array<std::atomic<bool>, kMostWays> out_{};
  std::atomic<int> winner_{-1};
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

/// Runs of the process so far that were part of a duel: what was timed around them says little.
std::uint64_t duel_runs() noexcept;

/// The process's duel of that key, for good; null where there are too many.
Duel* duel_of(const DuelKey& key) noexcept;

}  // namespace ipexrun::preload::graph
