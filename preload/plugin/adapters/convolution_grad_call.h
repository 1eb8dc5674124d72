// The gradients of a convolution, plain or transposed, with respect to image, weight and bias, as the adapter found them in a backward
// pass.
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
  [[nodiscard]] bool changes_dtype() const override { return forward.dtype == at::kFloat; }

 private:
  /// Whether the gradients may be products of matrices: the weight's [out, pixels] x [pixels, window], the image's, where a window is one
  /// pixel, [pixels, out] x [out, in]. Worth a try where a window is one pixel or where all windows, laid side by side, are small.
  [[nodiscard]] bool are_products() const;
  [[nodiscard]] bool is_of_pixels() const;
  /// False: the image is one pixel long in a direction in which windows are longer. oneDNN's bf16 gradient of such weights leaves memory
  /// unwritten (torch's own bf16 convolutions, autocast too: 39 of 40 calls for 3 x 3, stride 2, padding 1 on images of one pixel).
  [[nodiscard]] bool windows_fit_image() const;
  /// False: every second pixel of an image whose channels do not fill oneDNN's blocks. Its gradient of such weights writes past its memory
  /// where images lie channels last (oneDNN issue 6035; torch 2.13 in bf16, autocast too: heaps found corrupt within 800 calls).
  [[nodiscard]] bool strided_pixels_fill_blocks() const;
  [[nodiscard]] Outputs by_products(IsaSet isa) const;
  /// The bias's gradient as well, where it is asked for.
  [[nodiscard]] Outputs as_stocks(const at::Tensor& of_weight, const at::Tensor& of_image, IsaSet isa) const;

  /// Of one weight, in double.
  template <typename T>
  [[nodiscard]] double weight_sum(std::int64_t out_channel, std::int64_t in_channel, const Spatial& at) const;
  template <typename T>
  [[nodiscard]] bool image_is_accurate(const at::Tensor& stock, const at::Tensor& result) const;
  template <typename T>
  [[nodiscard]] bool weight_is_accurate(const at::Tensor& stock, const at::Tensor& result) const;
  template <typename T>
  [[nodiscard]] bool accurate_as(const Outputs& stock, const Outputs& result) const;
  template <typename T>
  [[nodiscard]] bool gradients_finite_as() const;
};

}  // namespace ipexrun::preload
