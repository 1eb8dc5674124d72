// The largest or smallest elements of rows, as the adapter found it in the user's call.
#pragma once

#include "preload/plugin/op_call.h"

namespace ipexrun::preload {

class TopkCall final : public OpCall {
 public:
  const at::Tensor* x = nullptr;  ///< contiguous float32
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t k = 0;
  bool largest = true;

  [[nodiscard]] SiteId site_id() const override;
  [[nodiscard]] SiteKey site_key(const SiteId& id, const TierOptions& options) const override;
  [[nodiscard]] std::vector<int> candidates(const TierOptions& options) const override;
  [[nodiscard]] bool changes_dtype() const override { return false; }
  [[nodiscard]] Outputs run(int candidate, const Packs& packs, IsaSet isa) const override;
  [[nodiscard]] bool accurate(const Outputs& stock, const Outputs& result, int candidate) const override;
};

}  // namespace ipexrun::preload
