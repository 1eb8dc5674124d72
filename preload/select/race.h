// Two rivals timed in pairs on the user's own calls: who is faster, decided by ratios of neighbours in time, because absolute
// times on a shared machine mean nothing.
#pragma once

#include <cstdint>
#include <vector>

namespace ipexrun::preload {

inline constexpr double kWinRatio = 0.95;    ///< the challenger must be at least this much faster (median of ratios)
inline constexpr int kMinPairs = 6;          ///< no win before, unless it is clear
inline constexpr int kMaxPairs = 16;         ///< undecided by then counts as lost, unless the median says won: then noise hides it
inline constexpr int kMostPairs = 64;        ///< of a race that goes on for that; its calls take less time than the rival's alone would
inline constexpr double kClearRatio = 0.67;  ///< at least this fast in each of the first kClearPairs pairs: won at once
inline constexpr int kClearPairs = 3;
inline constexpr double kPlainRatio = 0.4;  ///< at least this fast in each of the first kPlainPairs pairs of long calls: won at once
inline constexpr int kPlainPairs = 2;
inline constexpr double kLongNs = 1e8;         ///< of the rival; what else runs on the machine comes and goes many times in such a call
inline constexpr double kHopelessRatio = 1.3;  ///< slower than this in each of the first kHopelessPairs pairs: dropped at once
inline constexpr int kHopelessPairs = 3;
inline constexpr double kSlowNs = 1e7;        ///< of the rival: each pair takes much of the program's time, and says more than a short one
inline constexpr double kSlowHopeless = 1.1;  ///< of such calls: slower than this in each of the first kSlowPairs pairs: dropped at once
inline constexpr int kSlowPairs = 2;
inline constexpr double kSlowBehind = 1.03;  ///< likewise: slower than this in the middle of kSlowMinPairs is lost,
inline constexpr int kSlowMinPairs = 4;
inline constexpr int kSlowMaxPairs = 8;  ///< and not ahead by then

inline constexpr double kOrderRatio = 1.2;  ///< pairs of one order and of the other lie this far apart: the order matters
inline constexpr int kOrderPairs = 4;       ///< not asked before

enum class RaceResult { kUndecided, kWon, kLost };

inline constexpr double kDisturbedRatio = 2.0;  ///< the rival itself took this many times longer in one pair than in another

/// The middle of the values (mean of the two middle ones); 0 when empty.
double median(std::vector<double> values);

/// Ratios challenger / rival, one a pair, of pairs that alternate in order: the rival first, the challenger first, and so on. Where a
/// result is large, who comes second writes to memory that the kernel has to find first, and loses for that; then each two neighbours are
/// taken together, and both have paid once. Not thread-safe.
class Race {
 public:
  /// Of a challenger that lost before and has another race: chance must not win what it lost, so it may lose fewer pairs of this one.
  void doubt() { doubtful_ = true; }
  void add(std::int64_t rival_ns, std::int64_t challenger_ns);
  /// The rival could not run: no pair. As many such calls as a race may have pairs end it as lost.
  void miss() { ++misses_; }
  [[nodiscard]] RaceResult result() const;
  [[nodiscard]] int pairs() const { return static_cast<int>(ratios_.size()); }
  [[nodiscard]] double ratio() const { return median(order_matters() ? blocks() : ratios_); }
  /// The rival's own times are so far apart that something else ran on the machine: the race says little.
  [[nodiscard]] bool disturbed() const;
  [[nodiscard]] std::int64_t rival_ns() const;
  [[nodiscard]] std::int64_t challenger_ns() const;

 private:
  [[nodiscard]] bool order_matters() const;
  [[nodiscard]] std::vector<double> blocks() const;

  int misses_ = 0;
  bool doubtful_ = false;
  std::vector<double> ratios_;
  std::vector<double> rival_;
  std::vector<double> challenger_;
};

}  // namespace ipexrun::preload
