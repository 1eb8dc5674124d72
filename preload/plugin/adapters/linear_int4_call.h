// A product with weights of 4 bits, as the adapter found it in the user's call. The weights are read where they lie: no pack.
#pragma once

#include "kernels/linear_int4.h"
#include "preload/plugin/op_call.h"

namespace ipexrun::preload {

class LinearInt4Call final : public OpCall {
 public:
  const at::Tensor* a = nullptr;      ///< [m, k], bfloat16, contiguous
  const at::Tensor* b = nullptr;      ///< [n, k / 2], packed by stock, contiguous
  const at::Tensor* pairs = nullptr;  ///< [k / group, n, 2], bfloat16, contiguous
  std::int64_t group = 0;

  [[nodiscard]] kernels::LinearInt4Args args() const;  ///< without C

  [[nodiscard]] SiteId site_id() const override;
  [[nodiscard]] SiteKey site_key(const SiteId& id, const TierOptions& options) const override;
  [[nodiscard]] std::vector<int> candidates(const TierOptions& options) const override;
  [[nodiscard]] bool changes_dtype() const override { return false; }
  [[nodiscard]] Outputs run(int candidate, const Packs& packs, IsaSet isa) const override;
  [[nodiscard]] bool accurate(const Outputs& stock, const Outputs& result, int candidate) const override;
};

}  // namespace ipexrun::preload
