// The gradients of attention with respect to Q, K and V, as the adapter found them in a backward pass.
#pragma once

#include <array>

#include "preload/plugin/op_call.h"

namespace ipexrun::preload {

class AttentionGradCall final : public OpCall {
 public:
  static constexpr bool kInBackward = true;  ///< taken there: it has no weight and moves none

  const at::Tensor* grad = nullptr;  ///< of the result; this and the next four [batch, heads, rows or keys, depth], the depth dense
  const at::Tensor* q = nullptr;
  const at::Tensor* k = nullptr;
  const at::Tensor* v = nullptr;
  const at::Tensor* result = nullptr;
  const at::Tensor* logsumexp = nullptr;          ///< [batch, heads, rows], float32
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
  template <typename T>
  [[nodiscard]] bool accurate_as(const Outputs& stock, const Outputs& outputs, Precision precision) const;
};

}  // namespace ipexrun::preload
