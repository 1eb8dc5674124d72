// The gradients of a plain convolution with respect to image, weight and bias, as the adapter found them in a backward pass.
#pragma once

#include "preload/plugin/adapters/convolution_call.h"

namespace ipexrun::preload {

/// Results stand in the order {weight, image, bias}: the weight's is always asked for, the others may be missing.
class ConvolutionGradCall final : public OpCall {
 public:
  static constexpr bool kInBackward = true;

  ConvolutionCall forward;           ///< what is derived: x, w, sizes; no bias
  const at::Tensor* grad = nullptr;  ///< of the result, [N, Co, spatial...]
  bool wants_image = false;
  bool wants_bias = false;

  [[nodiscard]] SiteId site_id() const override;
  [[nodiscard]] SiteKey site_key(const SiteId& id, const TierOptions& options) const override;
  [[nodiscard]] std::vector<int> candidates(const TierOptions& options) const override;
  [[nodiscard]] Outputs run(int candidate, const Packs& packs, IsaSet isa) const override;
  [[nodiscard]] bool accurate(const Outputs& stock, const Outputs& result, int candidate) const override;
  [[nodiscard]] bool gradients_finite() const override;

 private:
  /// Of one weight, in double.
  [[nodiscard]] double weight_sum(std::int64_t out_channel, std::int64_t in_channel, const Spatial& at) const;
  [[nodiscard]] bool image_is_accurate(const at::Tensor& stock, const at::Tensor& result) const;
  [[nodiscard]] bool weight_is_accurate(const at::Tensor& stock, const at::Tensor& result) const;
};

}  // namespace ipexrun::preload
