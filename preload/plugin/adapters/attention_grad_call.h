// The gradients of attention with respect to Q, K and V, as the adapter found them in a backward pass.
#pragma once

#include "preload/plugin/adapters/attention_operands.h"

namespace ipexrun::preload {

class AttentionGradCall final : public AttentionOperands {
 public:
  static constexpr bool kInBackward = true;  ///< taken there: it has no weight and moves none

  const at::Tensor* grad = nullptr;  ///< of the result, both as q
  const at::Tensor* result = nullptr;
  const at::Tensor* logsumexp = nullptr;  ///< [batch, heads, rows], float32

  [[nodiscard]] SiteId site_id() const override;
  [[nodiscard]] SiteKey site_key(const SiteId& id, const TierOptions& options) const override;
  [[nodiscard]] std::vector<int> candidates(const TierOptions& options) const override;
  [[nodiscard]] Outputs run(int candidate, const Packs& packs, IsaSet isa) const override;
  [[nodiscard]] bool accurate(const Outputs& stock, const Outputs& result, int candidate) const override;

 private:
  template <typename T>
  [[nodiscard]] bool accurate_as(const Outputs& stock, const Outputs& outputs, Precision precision) const;
};

}  // namespace ipexrun::preload
