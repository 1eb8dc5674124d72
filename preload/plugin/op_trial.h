// One call of an op in the hands of selection.
#pragma once

#include <c10/util/FunctionRef.h>

#include <array>

#include "preload/plugin/op_call.h"
#include "preload/select/selector.h"

namespace ipexrun::preload {

class OpTrial final : public Trial {
 public:
  /// `stock_aside` computes into new memory what `stock` may write in place.
  OpTrial(TierState& state, const OpCall& call, Site& site, bool forced, c10::function_ref<Outputs()> stock,
          c10::function_ref<Outputs()> stock_aside)
      : state_(state),
        call_(call),
        site_(site),
        has_weight_(call.weight() != nullptr),
        forced_(forced),
        stock_(stock),
        stock_aside_(stock_aside) {}

  void run_stock() override;
  Readiness prepare(int candidate) noexcept override;
  bool run(int candidate) noexcept override;
  bool verify(int candidate) noexcept override;
  void take(int candidate) noexcept override;
  std::uint64_t weight() noexcept override;

  /// Delivered to where the user wants it. May throw what a copy throws.
  Outputs result() &&;

 private:
  void look_up();
  Readiness verdict_of(int candidate) const;

  TierState& state_;
  const OpCall& call_;
  Site& site_;
  const bool has_weight_;
  const bool forced_;
  c10::function_ref<Outputs()> stock_;
  c10::function_ref<Outputs()> stock_aside_;
  Outputs outputs_;
  bool beside_ = false;  ///< a candidate may run on the same inputs: nothing is written to them before the end of the call
  bool delivered_ = false;
  std::array<Outputs, kMaxCandidates> results_;
  bool looked_up_ = false;
  WeightUse use_;
  WeightState weight_;
};

}  // namespace ipexrun::preload
