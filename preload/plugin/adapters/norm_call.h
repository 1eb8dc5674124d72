// Softmax or layer norm over the last dimension, as the adapter found it in the user's call.
#pragma once

#include "preload/plugin/op_call.h"

namespace ipexrun::preload {

class NormCall final : public OpCall {
 public:
  const at::Tensor* x = nullptr;     ///< contiguous
  const at::Tensor* gain = nullptr;  ///< layer norm's weight, [columns], null = ones
  const at::Tensor* bias = nullptr;  ///< [columns], null = zeros
  bool layer_norm = false;           ///< else softmax
  double eps = 0;
  std::int64_t normalized_dims = 1;  ///< of the last dimensions of x
  std::int64_t rows = 0;
  std::int64_t columns = 0;

  [[nodiscard]] SiteId site_id() const override;
  [[nodiscard]] SiteKey site_key(const SiteId& id, const TierOptions& options) const override;
  [[nodiscard]] std::vector<int> candidates(const TierOptions& options) const override;
  [[nodiscard]] bool changes_dtype() const override { return false; }
  [[nodiscard]] Outputs run(int candidate, const Packs& packs, IsaSet isa) const override;
  [[nodiscard]] bool accurate(const Outputs& stock, const Outputs& result, int candidate) const override;

 private:
  [[nodiscard]] at::ScalarType parameter_dtype() const;
  [[nodiscard]] Outputs run_softmax(IsaSet isa) const;
  [[nodiscard]] Outputs run_layer_norm(IsaSet isa) const;
  template <typename T>
  [[nodiscard]] bool accurate_as(const at::Tensor& stock, const at::Tensor& candidate, Precision precision) const;
};

}  // namespace ipexrun::preload
