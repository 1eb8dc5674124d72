// One program against what the user has so far, on the user's own calls: is it right, and is it faster.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "preload/plugin/graph/compare.h"
#include "preload/select/race.h"

namespace ipexrun::preload::graph {

/// Used by one thread at a time.
class ProgramTrial {
 public:
  /// Judges the results of one call, beside exact ones where there are any; false ends the trial for good. `with_room`: calls to come are
  /// to be as close as the rule asks, whatever their inputs, so that what bf16 rounds inside may take but a part of it now.
  bool check(const std::vector<std::optional<at::Tensor>>& stock, const std::vector<std::optional<at::Tensor>>& mine, bool bf16,
             const std::vector<std::optional<at::Tensor>>& exact = {}, bool with_room = false) {
    const Likeness likeness = compare(stock, mine, exact);
    const bool reduced = std::any_of(stock.begin(), stock.end(), [](const std::optional<at::Tensor>& result) {
      return result && at::isReducedFloatingType(result->scalar_type());  // stock rounds them as well
    });
    const double bound = reduced ? kModuleBf16Error : !bf16 ? kModuleF32Error : with_room ? kBf16ErrorToWin : kModuleBf16Error;
    error_ = std::max(error_, likeness.error);
    return accurate_ =
               accurate_ && likeness.same_kind && likeness.error <= bound && (!(bf16 || reduced) || likeness.cosine >= kModuleCosine);
  }
  /// It lost before, and chance is not to win it now.
  void doubt() {
    race_.doubt();
    bounds_.doubt();
  }
  void add(std::int64_t stock_ns, std::int64_t mine_ns) {
    race_.add(stock_ns, mine_ns);
    bounds_.add(stock_ns, mine_ns);
  }
  /// A pair in which ours was still choosing its kernels, so that it took longer than it is going to; what stock's took beyond its answer
  /// is taken off. Such pairs may show that ours is faster, never that it is not.
  void add_unsettled(std::int64_t stock_ns, std::int64_t mine_ns) { bounds_.add(stock_ns, mine_ns); }
  /// 0 undecided, 1 won, -1 lost.
  [[nodiscard]] std::int64_t result() const {
    if (!accurate_) return -1;
    const RaceResult result = bounds_.result() == RaceResult::kWon ? RaceResult::kWon : race_.result();
    return result == RaceResult::kWon ? 1 : result == RaceResult::kLost ? -1 : 0;
  }
  /// Something else ran on the machine meanwhile: losing says little.
  [[nodiscard]] bool disturbed() const { return accurate_ && race_.disturbed(); }
  [[nodiscard]] double ratio() const { return race_.pairs() > 0 ? race_.ratio() : bounds_.ratio(); }
  [[nodiscard]] double error() const { return error_; }

 private:
  Race race_;
  Race bounds_;  ///< of the ratio, from above: all pairs
  double error_ = 0;
  bool accurate_ = true;
};

}  // namespace ipexrun::preload::graph
