// Bags of rows of a table, as the adapter found them in the user's call.
#pragma once

#include "kernels/embedding.h"
#include "preload/plugin/op_call.h"

namespace ipexrun::preload {

class EmbeddingBagCall final : public OpCall {
 public:
  const at::Tensor* table = nullptr;    ///< [rows, columns], elements of a row adjacent
  const at::Tensor* indices = nullptr;  ///< contiguous, as are the others
  const at::Tensor* offsets = nullptr;
  const at::Tensor* weights = nullptr;  ///< null without
  kernels::EmbeddingBagArgs args;       ///< without pointers
  std::int64_t reported = 0;            ///< sizes that stock returns: of sums one an offset or one a bag

  [[nodiscard]] SiteId site_id() const override;
  [[nodiscard]] SiteKey site_key(const SiteId& id, const TierOptions& options) const override;
  [[nodiscard]] std::vector<int> candidates(const TierOptions& options) const override;
  [[nodiscard]] bool changes_dtype() const override { return false; }
  [[nodiscard]] Outputs run(int candidate, const Packs& packs, IsaSet isa) const override;
  [[nodiscard]] bool accurate(const Outputs& stock, const Outputs& result, int candidate) const override;

 private:
  [[nodiscard]] kernels::EmbeddingBagArgs with_inputs() const;
  template <typename T, typename Index>
  [[nodiscard]] double truth(std::int64_t bag, std::int64_t column) const;
  template <typename T, typename Index>
  [[nodiscard]] bool accurate_as(const Outputs& stock, const Outputs& result, Precision precision) const;
};

}  // namespace ipexrun::preload
