// softmax(Q K^T * scale + mask) V, as the adapter found it in the user's call.
#pragma once

#include "preload/plugin/adapters/attention_operands.h"

namespace ipexrun::preload {

class AttentionCall final : public AttentionOperands {
 public:
  bool wants_grad = false;      ///< float32 of a program that trains: stays float32
  bool wants_logsumexp = true;  ///< as the second of the outputs
  at::Tensor out;               ///< where run() writes, sizes as q, the depth dense; undefined: a new one that lies as q does

  /// Reads the arguments of the operator, which outlive the call; false, with the reason, for what candidates do not compute.
  bool describe(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, double dropout_p, bool is_causal,
                const std::optional<at::Tensor>& attn_mask, std::optional<double> scale_given);
  /// The candidate that computes the call best, where bf16 inside of float32 is allowed or not; kStock for none.
  [[nodiscard]] int best(bool bf16, IsaSet isa) const;

  [[nodiscard]] bool changes_dtype() const override;
  [[nodiscard]] SiteId site_id() const override;
  [[nodiscard]] SiteKey site_key(const SiteId& id, const TierOptions& options) const override;
  [[nodiscard]] std::vector<int> candidates(const TierOptions& options) const override;
  [[nodiscard]] Outputs run(int candidate, const Packs& packs, IsaSet isa) const override;
  [[nodiscard]] bool accurate(const Outputs& stock, const Outputs& result, int candidate) const override;

 private:
  [[nodiscard]] bool may_round(const TierOptions& options) const;
  [[nodiscard]] Outputs run_widened(IsaSet isa) const;
  template <typename T>
  [[nodiscard]] bool accurate_as(const Outputs& stock, const Outputs& result, Precision precision) const;
};

}  // namespace ipexrun::preload
