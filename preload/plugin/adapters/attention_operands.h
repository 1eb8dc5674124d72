// What attention and its gradients read alike: Q, K, V, mask, scale. How a call is told apart by them and handed to the kernels.
#pragma once

#include <array>
#include <optional>

#include "kernels/attention.h"
#include "preload/plugin/op_call.h"

namespace ipexrun::preload {

class AttentionOperands : public OpCall {
 public:
  const at::Tensor* q = nullptr;  ///< [batch, heads, rows, depth], the depth dense, any other strides
  const at::Tensor* k = nullptr;  ///< [batch, heads or a divisor, keys, depth]
  const at::Tensor* v = nullptr;
  const at::Tensor* mask = nullptr;               ///< null = none
  std::array<std::int64_t, 4> mask_strides = {};  ///< over [batch, heads, rows, keys]; 0 repeats, that of keys is 0 or 1
  float scale = 1;
  bool causal = false;

  /// [rows, keys] or [batch, heads, rows, keys], each of the size of the scores or 1; q and k are known.
  bool describe_mask(const std::optional<at::Tensor>& given);
  /// False for 0: 0 times an infinity or NaN is not NaN in stock.
  bool describe_scale(std::optional<double> given);
  /// Not so small that stock needs about what finding the site costs.
  bool worthwhile();

  [[nodiscard]] bool changes_dtype() const override { return false; }

 protected:
  [[nodiscard]] bool masked_by_key() const { return mask != nullptr && mask_strides[3] != 0; }
  /// What tells the scores apart; bits of `form` from 18 on are free.
  [[nodiscard]] SiteId scores_id() const;
  /// Its words; `layouts` are those of q, k and v.
  [[nodiscard]] SiteKey scores_key(const SiteId& id, const TierOptions& options, std::string layouts) const;
  /// All but the results.
  [[nodiscard]] kernels::AttentionArgs kernel_operands() const;
};

/// Strides of [batch, heads, rows, depth].
kernels::Heads heads_of(const at::Tensor& tensor);

}  // namespace ipexrun::preload
