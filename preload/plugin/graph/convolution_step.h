// The step of a convolution: the fastest kernel known for its form on a weight that is packed once, with what follows in the same pass.
#pragma once

#include <atomic>

#include "preload/plugin/graph/convolution_pack.h"
#include "preload/plugin/graph/convolution_ways.h"
#include "preload/plugin/graph/duel.h"
#include "preload/plugin/graph/executor.h"

namespace ipexrun::preload::graph {

class ConvolutionStep final : public Step {
 public:
  explicit ConvolutionStep(const Node& node);
  void run(Values& values) const override;
  [[nodiscard]] const char* kernel() const override { return name_of_raced(raced_.load(std::memory_order_relaxed)); }
  bool be_exact() const override;
  void may_reuse(Value value) override { reuses_other_ = reuses_other_ || (value == convolution_.other && value != convolution_.x); }

  struct Operands;

 private:
  /// False where the sizes do not fit, which stock raises for.
  bool describe(const Operands& operands, ConvolutionCall* call) const;
  [[nodiscard]] at::Tensor run_own(const Operands& operands) const;
  [[nodiscard]] at::Tensor run_stock(const Operands& operands) const;
  /// Undefined: it cannot be taken.
  [[nodiscard]] at::Tensor run_method(const Operands& operands, const ConvolutionCall& call, Method method, IsaSet isa) const;
  [[nodiscard]] at::Tensor run_kernel(const Operands& operands, const ConvolutionCall& call, Method method, const Folded& folded,
                                      at::ScalarType result, IsaSet isa) const;
  [[nodiscard]] at::Tensor run_windows(const Operands& operands, const ConvolutionCall& call, Method method, const Folded& folded,
                                       IsaSet isa) const;
  [[nodiscard]] at::Tensor run_winograd(const Operands& operands, const ConvolutionCall& call, Method method, const Folded& folded,
                                        at::ScalarType dtype, IsaSet isa) const;
  [[nodiscard]] at::Tensor run_onednn(const Operands& operands, const ConvolutionCall& call, Method method, const Folded& folded,
                                      IsaSet isa) const;

  Convolution convolution_;
  Value output_;
  bool reuses_other_ = false;
  mutable WaysTried tried_;
  mutable std::atomic<Method> raced_{Method::kStock};  ///< the method of the last run, where several race
  mutable std::atomic<bool> exact_{false};             ///< not by what is less exact than the other ways
  mutable std::atomic<int> refused_{0};                ///< calls by the method that won
};

/// A value in another order and dtype: on its way into convolutions, or out of them to somebody else.
class ReorderStep final : public Step {
 public:
  explicit ReorderStep(const Node& node);
  void run(Values& values) const override;

 private:
  Value from_;
  Value to_;
  Layout layout_;
  at::ScalarType dtype_;
};

}  // namespace ipexrun::preload::graph
