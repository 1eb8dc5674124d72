// A product with int8 weights, as the adapter found it in the user's call. The weights are read where they lie: no pack.
#pragma once

#include "preload/plugin/op_call.h"

namespace ipexrun::preload {

class LinearInt8Call final : public OpCall {
 public:
  const at::Tensor* a = nullptr;       ///< [m, k], contiguous
  const at::Tensor* b = nullptr;       ///< [n, k], int8, contiguous
  const at::Tensor* scales = nullptr;  ///< [n], contiguous, dtype of a

  [[nodiscard]] SiteId site_id() const override;
  [[nodiscard]] SiteKey site_key(const SiteId& id, const TierOptions& options) const override;
  [[nodiscard]] std::vector<int> candidates(const TierOptions& options) const override;
  [[nodiscard]] bool changes_dtype() const override { return false; }
  [[nodiscard]] Outputs run(int candidate, const Packs& packs, IsaSet isa) const override;
  [[nodiscard]] bool accurate(const Outputs& stock, const Outputs& result, int candidate) const override;

 private:
  template <typename T>
  [[nodiscard]] bool accurate_as(const at::Tensor& stock, const at::Tensor& result, Precision precision) const;
};

}  // namespace ipexrun::preload
