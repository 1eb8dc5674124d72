// The step of a convolution: the fastest kernel known for its form on a weight that is packed once, with what follows in the same pass.
#pragma once

#include <atomic>

#include "preload/plugin/graph/convolution_pack.h"
#include "preload/plugin/graph/executor.h"

namespace ipexrun::preload::graph {

/// Which kernel computes a call. bf16 inside: our product where windows are one pixel, our own convolutions where the CPU has AMX, each
/// channel's own window in float32 (more exact, and as fast); else oneDNN. float32: oneDNN, and our own where each channel has a window of
/// its own and the image is not larger than the caches: docs/performance-kernels.md has them side by side. Where that did not show who is
/// faster (products and oneDNN, without AMX; windows and oneDNN), a duel of the step's own runs decides.
Method method_of(const ConvolutionCall& call, const Convolution& convolution, IsaSet isa);

class ConvolutionStep final : public Step {
 public:
  explicit ConvolutionStep(const Node& node);
  void run(Values& values) const override;
  void may_reuse(Value value) override { reuses_other_ = reuses_other_ || (value == convolution_.other && value != convolution_.x); }

  struct Operands;

 private:
  /// False where the sizes do not fit, which stock raises for.
  bool describe(const Operands& operands, ConvolutionCall* call) const;
  [[nodiscard]] at::Tensor run_own(const Operands& operands) const;
  [[nodiscard]] at::Tensor run_stock(const Operands& operands) const;
  [[nodiscard]] at::Tensor run_kernel(const Operands& operands, const ConvolutionCall& call, Method method, const Folded& folded,
                                      at::ScalarType result, IsaSet isa) const;
  [[nodiscard]] at::Tensor run_windows(const Operands& operands, const ConvolutionCall& call, const Folded& folded, IsaSet isa) const;
  [[nodiscard]] at::Tensor run_onednn(const Operands& operands, const ConvolutionCall& call, Method method, const Folded& folded,
                                      IsaSet isa) const;

  Convolution convolution_;
  Value output_;
  bool reuses_other_ = false;
  mutable std::atomic<bool> forgot_{false};  ///< the pack of the method that lost
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
