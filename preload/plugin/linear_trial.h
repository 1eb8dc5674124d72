// One call of a linear op in the hands of selection.
#pragma once

#include <c10/util/FunctionRef.h>

#include <array>

#include "preload/plugin/linear_call.h"
#include "preload/select/selector.h"

namespace ipexrun::preload {

class LinearTrial final : public Trial {
 public:
  LinearTrial(TierState& state, const LinearCall& call, Site& site, bool forced, c10::function_ref<at::Tensor()> stock)
      : state_(state), call_(call), site_(site), forced_(forced), stock_(stock) {}

  void run_stock() override { stock_result_ = stock_(); }
  Readiness prepare(int candidate) noexcept override;
  bool run(int candidate) noexcept override;
  bool verify(int candidate) noexcept override;
  void take(int candidate) noexcept override { stock_result_ = std::move(results_[static_cast<std::size_t>(candidate)]); }
  std::uint64_t weight() noexcept override;

  at::Tensor result() && { return std::move(stock_result_); }

 private:
  void look_up();
  Readiness verdict_of(int candidate) const;
  bool accurate(const at::Tensor& result, int candidate) const;

  TierState& state_;
  const LinearCall& call_;
  Site& site_;
  const bool forced_;
  c10::function_ref<at::Tensor()> stock_;
  at::Tensor stock_result_;
  std::array<at::Tensor, kMaxCandidates> results_;
  bool looked_up_ = false;
  WeightUse use_;
  WeightState weight_;
};

}  // namespace ipexrun::preload
