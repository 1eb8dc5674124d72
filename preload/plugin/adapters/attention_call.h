// softmax(Q K^T * scale + mask) V, as the adapter found it in the user's call.
#pragma once

#include "preload/plugin/adapters/attention_operands.h"

namespace ipexrun::preload {

class AttentionCall final : public AttentionOperands {
 public:
  bool wants_grad = false;  ///< float32 of a program that trains: stays float32

  [[nodiscard]] bool changes_dtype() const override;
  [[nodiscard]] SiteId site_id() const override;
  [[nodiscard]] SiteKey site_key(const SiteId& id, const TierOptions& options) const override;
  [[nodiscard]] std::vector<int> candidates(const TierOptions& options) const override;
  [[nodiscard]] Outputs run(int candidate, const Packs& packs, IsaSet isa) const override;
  [[nodiscard]] bool accurate(const Outputs& stock, const Outputs& result, int candidate) const override;

 private:
  [[nodiscard]] bool may_round(const TierOptions& options) const;
  template <typename T>
  [[nodiscard]] bool accurate_as(const Outputs& stock, const Outputs& result, Precision precision) const;
};

}  // namespace ipexrun::preload
