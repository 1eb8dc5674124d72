// Interpolation of images, as the adapter found it in the user's call.
#pragma once

#include "kernels/resize.h"
#include "preload/plugin/op_call.h"

namespace ipexrun::preload {

enum class ResizeKind : int { kNearest, kNearestExact, kLinear, kCubic };

/// Which elements of one dimension an output is made of, in the layout of kernels::ResizeAxis.
struct ResizeTable {
  std::int64_t size = 0;
  std::int64_t outputs = 0;
  std::int64_t pitch = 0;
  int taps = 1;
  std::vector<std::int32_t> places;
  std::vector<float> weights;  ///< empty: copies

  [[nodiscard]] kernels::ResizeAxis axis() const;
};

class ResizeCall final : public OpCall {
 public:
  const at::Tensor* x = nullptr;  ///< contiguous [images, channels, height, width]
  ResizeKind kind = ResizeKind::kNearest;
  bool align_corners = false;
  std::int64_t out_height = 0;
  std::int64_t out_width = 0;
  std::optional<double> scale_height;
  std::optional<double> scale_width;

  [[nodiscard]] SiteId site_id() const override;
  [[nodiscard]] SiteKey site_key(const SiteId& id, const TierOptions& options) const override;
  [[nodiscard]] std::vector<int> candidates(const TierOptions& options) const override;
  [[nodiscard]] bool changes_dtype() const override { return false; }
  [[nodiscard]] Outputs run(int candidate, const Packs& packs, IsaSet isa) const override;
  [[nodiscard]] bool accurate(const Outputs& stock, const Outputs& result, int candidate) const override;

 private:
  [[nodiscard]] ResizeTable table(std::int64_t size, std::int64_t outputs, std::optional<double> scale) const;
  template <typename T>
  [[nodiscard]] bool accurate_as(const at::Tensor& stock, const at::Tensor& candidate, Precision precision) const;
};

}  // namespace ipexrun::preload
