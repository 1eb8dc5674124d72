// Which of two ways a step takes: both are timed on the step's own runs, in turn, and the faster one stays. For kernels that are right alike (the same
// arithmetic in another order), between which no rule by sizes was found to hold on every machine.
//
// Thread rule: any number of threads may run one. What others do on the machine meanwhile hits both ways; the least of each one's times counts.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace ipexrun::preload::graph {

class Duel {
 public:
  /// 0 or 1.
  [[nodiscard]] int way() const noexcept;
  [[nodiscard]] bool decided() const noexcept { return winner_.load(std::memory_order_acquire) >= 0; }
  /// A run that took `way` was over after so long. The first of each way packs weights and does not count.
  void took(int way, std::int64_t ns) noexcept;
  /// It could not be run.
  void failed(int way) noexcept { winner_.store(1 - way, std::memory_order_release); }

 private:
  static constexpr int kRuns = 4;            ///< of each way, besides the first
  static constexpr double kFaster = 0.97;    ///< of the other's time, for way 1 to win
  std::array<std::atomic<int>, 2> runs_{};
  std::array<std::atomic<std::int64_t>, 2> least_{};
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
