// Pooling of planes, as the adapter found it in the user's call.
#pragma once

#include "kernels/pool.h"
#include "preload/plugin/op_call.h"

namespace ipexrun::preload {

enum class PoolKind : int { kMax, kAverage, kAdaptive };

class PoolCall final : public OpCall {
 public:
  const at::Tensor* x = nullptr;  ///< contiguous [planes..., height, width]
  PoolKind kind = PoolKind::kMax;
  kernels::PoolArgs args;  ///< without pointers

  [[nodiscard]] SiteId site_id() const override;
  [[nodiscard]] SiteKey site_key(const SiteId& id, const TierOptions& options) const override;
  [[nodiscard]] std::vector<int> candidates(const TierOptions& options) const override;
  [[nodiscard]] bool changes_dtype() const override { return false; }
  [[nodiscard]] Outputs run(int candidate, const Packs& packs, IsaSet isa) const override;
  [[nodiscard]] bool accurate(const Outputs& stock, const Outputs& result, int candidate) const override;

 private:
  template <typename T>
  [[nodiscard]] double truth(std::int64_t index) const;
  template <typename T>
  [[nodiscard]] bool accurate_as(const Outputs& stock, const Outputs& result, Precision precision) const;
};

}  // namespace ipexrun::preload
