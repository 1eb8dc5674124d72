// One call of an op in the hands of selection.
#pragma once

#include <c10/util/FunctionRef.h>

#include <array>
#include <optional>

#include "preload/plugin/op_call.h"
#include "preload/select/fork_gate.h"
#include "preload/select/selector.h"

namespace ipexrun::preload {

class OpTrial final : public Trial {
 public:
  /// `stock_aside` computes into new memory what `stock` may write in place.
  OpTrial(TierState& state, const OpCall& call, Site& site, bool forced, c10::function_ref<Outputs()> stock,
          c10::function_ref<Outputs()> stock_aside)
      : state_(state),
        call_(call),
        site_(&site),
        weight_count_(call.weight_count()),
        forced_(forced),
        stock_(stock),
        stock_aside_(stock_aside) {}

  void run_stock() override;
  Readiness prepare(int candidate, Purpose purpose) noexcept override;
  bool run(int candidate) noexcept override;
  bool verify(int candidate) noexcept override;
  void take(int candidate) noexcept override;
  std::uint64_t weight() noexcept override;

  /// The candidate answered while replaying: its use is one of those that the check judges. (Prepared is not enough: packing may have
  /// failed.)
  void note_replayed(int candidate);

  /// The site's choice rounds, and drift keeps this call from it for good. May throw std::bad_alloc.
  bool is_kept_from_choice();
  /// The call is one of another site's from here on: before anything was run.
  void move_to(Site& site) noexcept { site_ = &site; }

  /// PassFinder's mark of this call: 0 where it may not begin a pass.
  std::uint64_t pass_mark() noexcept;

  /// Delivered to where the user wants it. May throw what a copy throws.
  Outputs result() &&;

 private:
  bool look_up();
  bool pack(int i, int candidate);
  Readiness verdict_of(int candidate) const;
  Readiness after_drift(int candidate);
  bool waits_for_check(int candidate);
  void drop_packs(int candidate);
  bool rounds_training(int candidate) const;
  bool rounds(int candidate) const;
  bool may_round_training() const;

  TierState& state_;
  const OpCall& call_;
  Site* site_;
  const int weight_count_;
  const bool forced_;
  c10::function_ref<Outputs()> stock_;
  c10::function_ref<Outputs()> stock_aside_;
  Outputs outputs_;
  std::optional<ForkGate::Passage> passage_;  ///< from the first candidate on; a call that stays stock needs none
  bool racing_ = false;                       ///< what runs is timed beside another, its way to the user included
  bool beside_ = false;  ///< a candidate may run on the same inputs: nothing is written to them before the end of the call
  bool delivered_ = false;
  std::array<Outputs, kMaxCandidates> results_;
  bool looked_up_ = false;
  bool known_ = false;
  std::array<WeightUse, kMaxWeights> uses_;
  std::array<WeightState, kMaxWeights> weights_;  ///< all of them or, when one is not known yet, none
};

}  // namespace ipexrun::preload
