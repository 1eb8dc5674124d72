// Group norm, or batch norm with known moments, as the adapter found it in the user's call.
#pragma once

#include "preload/plugin/adapters/sampling.h"
#include "preload/plugin/op_call.h"

namespace ipexrun::preload {

class ChannelNormCall final : public OpCall {
 public:
  const at::Tensor* x = nullptr;     ///< contiguous [images, channels, pixels...] or, `adjacent`, channels last
  const at::Tensor* gain = nullptr;  ///< [channels], null = ones
  const at::Tensor* bias = nullptr;  ///< [channels], null = zeros
  const at::Tensor* mean = nullptr;  ///< [channels], of a batch norm; null = group norm
  const at::Tensor* variance = nullptr;
  double eps = 0;
  bool adjacent = false;
  std::int64_t images = 0;
  std::int64_t channels = 0;
  std::int64_t pixels = 0;
  std::int64_t groups = 1;
  at::ScalarType parameters = at::kFloat;  ///< the dtype of all of them, and of what is saved

  [[nodiscard]] SiteId site_id() const override;
  [[nodiscard]] SiteKey site_key(const SiteId& id, const TierOptions& options) const override;
  [[nodiscard]] std::vector<int> candidates(const TierOptions& options) const override;
  [[nodiscard]] bool changes_dtype() const override { return false; }
  [[nodiscard]] Outputs run(int candidate, const Packs& packs, IsaSet isa) const override;
  [[nodiscard]] bool accurate(const Outputs& stock, const Outputs& result, int candidate) const override;

 private:
  [[nodiscard]] Outputs run_group_norm(IsaSet isa) const;
  [[nodiscard]] Outputs run_batch_norm(IsaSet isa) const;
  template <typename T>
  void sample_group(Samples* samples, const T* s, const T* c) const;
  template <typename T>
  [[nodiscard]] bool accurate_as(const at::Tensor& stock, const at::Tensor& candidate, Precision precision) const;
};

}  // namespace ipexrun::preload
