// A product of bytes with sums in int32, as the adapter found it in the user's call.
#pragma once

#include "preload/plugin/op_call.h"

namespace ipexrun::preload {

class IntMmCall final : public OpCall {
 public:
  const at::Tensor* a = nullptr;  ///< [m, k], int8 or uint8, rows `lda` apart
  const at::Tensor* b = nullptr;  ///< [k, n], int8, one of its strides 1
  std::int64_t lda = 0;

  [[nodiscard]] SiteId site_id() const override;
  [[nodiscard]] SiteKey site_key(const SiteId& id, const TierOptions& options) const override;
  [[nodiscard]] std::vector<int> candidates(const TierOptions& options) const override;
  [[nodiscard]] bool changes_dtype() const override { return false; }
  [[nodiscard]] int weight_count() const override { return 1; }
  [[nodiscard]] const at::Tensor* weight(int /*i*/) const override { return b; }
  void weight_view(int i, WeightKey* key) const override;
  [[nodiscard]] std::shared_ptr<const TensorPack> pack(int i, int candidate) const override;
  [[nodiscard]] Outputs run(int candidate, const Packs& packs, IsaSet isa) const override;
  [[nodiscard]] bool accurate(const Outputs& stock, const Outputs& result, int candidate) const override;

 private:
  [[nodiscard]] bool transposed() const { return b->stride(0) == 1; }
};

}  // namespace ipexrun::preload
