// softmax(Q K^T * scale + mask) V, as the adapter found it in the user's call.
#pragma once

#include <array>

#include "preload/plugin/op_call.h"

namespace ipexrun::preload {

class AttentionCall final : public OpCall {
 public:
  const at::Tensor* q = nullptr;  ///< [batch, heads, rows, depth], the depth dense, any other strides
  const at::Tensor* k = nullptr;  ///< [batch, heads or a divisor, keys, depth]
  const at::Tensor* v = nullptr;
  const at::Tensor* mask = nullptr;               ///< null = none
  std::array<std::int64_t, 4> mask_strides = {};  ///< over [batch, heads, rows, keys]; 0 repeats, that of keys is 0 or 1
  float scale = 1;
  bool causal = false;

  [[nodiscard]] SiteId site_id() const override;
  [[nodiscard]] SiteKey site_key(const SiteId& id, const TierOptions& options) const override;
  [[nodiscard]] std::vector<int> candidates(const TierOptions& options) const override;
  [[nodiscard]] bool changes_dtype() const override { return false; }
  [[nodiscard]] Outputs run(int candidate, const Packs& packs, IsaSet isa) const override;
  [[nodiscard]] bool accurate(const Outputs& stock, const Outputs& result, int candidate) const override;

 private:
  [[nodiscard]] bool masked_by_key() const { return mask != nullptr && mask_strides[3] != 0; }
  template <typename T>
  [[nodiscard]] bool accurate_as(const Outputs& stock, const Outputs& result, Precision precision) const;
};

}  // namespace ipexrun::preload
