// One convolution as the adapter found it in the user's call: 1, 2 or 3 spatial dimensions, plain or transposed.
#pragma once

#include <array>

#include "kernels/conv.h"
#include "kernels/linear.h"
#include "preload/plugin/op_call.h"

namespace ipexrun::preload {

/// Sizes of the spatial dimensions, the last one last; missing ones in front are 1 (strides, dilations) or 0 (paddings).
using Spatial = std::array<std::int64_t, 3>;

class ConvolutionCall final : public OpCall {
 public:
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
  [[nodiscard]] int weight_count() const override { return 1; }
  [[nodiscard]] const at::Tensor* weight(int /*i*/) const override { return w; }
  void weight_view(int i, WeightKey* key) const override;
  [[nodiscard]] std::shared_ptr<const TensorPack> pack(int i, int candidate) const override;
  [[nodiscard]] Outputs run(int candidate, const Packs& packs, IsaSet isa) const override;
  [[nodiscard]] bool accurate(const Outputs& stock, const Outputs& result, int candidate) const override;

 private:
  /// What does not depend on memory.
  [[nodiscard]] kernels::ConvArgs kernel_args(kernels::DType packed) const;
  [[nodiscard]] std::shared_ptr<const TensorPack> own_pack(kernels::DType packed) const;
  [[nodiscard]] Outputs run_own(const TensorPack& pack, kernels::DType packed, IsaSet isa) const;
  /// Not transposed, and not a window a channel.
  [[nodiscard]] bool dense() const;
  /// A window is one pixel, and each pixel has one: a product of pixels and the weight.
  [[nodiscard]] bool pointwise() const;
  [[nodiscard]] kernels::LinearArgs linear_args() const;
  [[nodiscard]] std::shared_ptr<const TensorPack> pointwise_pack() const;
  [[nodiscard]] Outputs run_pointwise(const TensorPack& pack, IsaSet isa) const;
  /// Of a pack, as for oneDNN's: what padding adds to the weight is not counted.
  [[nodiscard]] std::size_t uncounted_padding(std::size_t bytes) const;
  template <typename T>
  [[nodiscard]] double sum_at(std::int64_t sample, std::int64_t channel, const Spatial& at) const;
  template <typename T>
  [[nodiscard]] bool accurate_as(const at::Tensor& stock, const at::Tensor& candidate, Precision precision) const;
};

/// Looks up the stock operators that candidates use; false when this torch lacks one, and those candidates are not offered.
bool find_convolution_operators();

}  // namespace ipexrun::preload
