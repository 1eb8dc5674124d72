// One convolution as the adapter found it in the user's call: 1, 2 or 3 spatial dimensions, plain or transposed.
#pragma once

#include <array>

#include "kernels/conv.h"
#include "kernels/linear.h"
#include "preload/plugin/op_call.h"

namespace ipexrun::preload {

/// Sizes of the spatial dimensions, the last one last; missing ones in front are 1 (strides, dilations) or 0 (paddings).
using Spatial = std::array<std::int64_t, 3>;

/// Numbers of spatial dimensions that oneDNN's operators take: those of the widened problem.
class OnednnSizes {
 public:
  OnednnSizes(const Spatial& from, std::int64_t dims) : from_(from), count_(dims == 3 ? 3 : 2) {}
  operator at::IntArrayRef() const {  // NOLINT(google-explicit-constructor): it stands for the list
    return {from_.data() + (3 - count_), static_cast<std::size_t>(count_)};
  }

 private:
  const Spatial& from_;
  std::int64_t count_;
};

class ConvolutionCall final : public OpCall {
 public:
  static constexpr bool kInBackward = true;  ///< what activation checkpointing computes again

  const at::Tensor* x = nullptr;     ///< [N, Ci, spatial...]
  const at::Tensor* w = nullptr;     ///< [Co, Ci/groups, kernel...]; transposed: [Ci, Co/groups, kernel...]
  const at::Tensor* bias = nullptr;  ///< [Co], null = none
  at::ScalarType dtype = at::kFloat;
  std::int64_t groups = 1;
  bool transposed = false;
  bool channels_last = false;  ///< of the result: stock's rule is that either operand asks for it
  Spatial stride{1, 1, 1};
  Spatial padding{};
  Spatial dilation{1, 1, 1};
  Spatial output_padding{};
  Spatial more_behind{};  ///< zeros behind the image, beside those of `padding`: our kernels know them, stock's operators do not
  Spatial kernel{1, 1, 1};
  Spatial in{1, 1, 1};
  Spatial out{1, 1, 1};

  /// Spatial dimensions: 1, 2 or 3.
  [[nodiscard]] std::int64_t dims() const { return x->dim() - 2; }
  [[nodiscard]] std::int64_t in_channels() const { return x->size(1); }
  [[nodiscard]] std::int64_t out_channels() const { return transposed ? w->size(1) * groups : w->size(0); }
  /// Multiply-adds behind one element of the result.
  [[nodiscard]] std::int64_t depth() const { return in_channels() / groups * kernel[0] * kernel[1] * kernel[2]; }

  [[nodiscard]] SiteId site_id() const override;
  [[nodiscard]] SiteKey site_key(const SiteId& id, const TierOptions& options) const override;
  [[nodiscard]] std::vector<int> candidates(const TierOptions& options) const override;
  [[nodiscard]] int weight_count() const override { return training ? 0 : 1; }
  [[nodiscard]] const at::Tensor* weight(int /*i*/) const override { return w; }
  void weight_view(int i, WeightKey* key) const override;
  [[nodiscard]] std::shared_ptr<const TensorPack> pack(int i, int candidate) const override;
  [[nodiscard]] Outputs run(int candidate, const Packs& packs, IsaSet isa) const override;
  [[nodiscard]] bool accurate(const Outputs& stock, const Outputs& result, int candidate) const override;

  // What graphs take from here (graph/convolution_step.h).
  /// Fills in the sizes of windows and results, once the other fields are there.
  void describe_sizes();
  /// Whether stock would accept the sizes; it raises for the others.
  [[nodiscard]] bool sizes_fit() const;
  /// Whether each window meets the image. Where those of a whole row meet padding alone, oneDNN's packed convolution reads unmapped memory.
  [[nodiscard]] bool meets_image() const;
  /// What does not depend on memory.
  [[nodiscard]] kernels::ConvArgs kernel_args(kernels::DType packed) const;
  [[nodiscard]] kernels::LinearArgs linear_args() const;
  [[nodiscard]] std::shared_ptr<const TensorPack> own_pack(kernels::DType packed) const;
  /// A window is one pixel, and each pixel has one: a product of pixels and the weight.
  [[nodiscard]] bool pointwise() const;
  /// As many groups as channels, one output each.
  [[nodiscard]] bool depthwise() const;
  /// One element of the result, in double.
  template <typename T>
  [[nodiscard]] double sum_at(std::int64_t sample, std::int64_t channel, const Spatial& at) const;

 private:
  [[nodiscard]] Outputs run_own(const TensorPack& pack, kernels::DType packed, IsaSet isa) const;
  /// Not transposed, and not a window a channel.
  [[nodiscard]] bool dense() const;
  [[nodiscard]] std::shared_ptr<const TensorPack> pointwise_pack() const;
  /// Stock's own, on copies in bf16 that lie as the operands do.
  [[nodiscard]] Outputs run_cast() const;
  [[nodiscard]] Outputs run_pointwise(const TensorPack& pack, IsaSet isa) const;
  /// Of a pack, as for oneDNN's: what padding adds to the weight is not counted.
  [[nodiscard]] std::size_t uncounted_padding(std::size_t bytes) const;
  template <typename T>
  [[nodiscard]] bool accurate_as(const at::Tensor& stock, const at::Tensor& candidate, Precision precision) const;
};

}  // namespace ipexrun::preload
