// One layer and direction of an LSTM over a whole sequence, as the adapter found it in the user's call.
#pragma once

#include "preload/plugin/op_call.h"

namespace ipexrun::preload {

inline constexpr std::int64_t kLstmMode = 2;  ///< torch's number of this kind of cell

class LstmCall final : public OpCall {
 public:
  const at::Tensor* x = nullptr;             ///< [T, B, I]
  std::array<const at::Tensor*, 2> w{};      ///< [4H, I], [4H, H]
  std::array<const at::Tensor*, 2> bias{};   ///< [4H] each
  std::array<const at::Tensor*, 2> state{};  ///< [B, H]: hidden and cell
  bool reverse = false;
  bool bidirectional = false;
  bool batch_first = false;
  std::int64_t hidden = 0;
  std::int64_t layers = 1;  ///< of the whole network: the operator takes one of them, and is told how many there are

  [[nodiscard]] SiteId site_id() const override;
  [[nodiscard]] SiteKey site_key(const SiteId& id, const TierOptions& options) const override;
  [[nodiscard]] std::vector<int> candidates(const TierOptions& options) const override;
  [[nodiscard]] int weight_count() const override { return 2; }
  [[nodiscard]] const at::Tensor* weight(int i) const override { return w[static_cast<std::size_t>(i)]; }
  void weight_view(int i, WeightKey* key) const override;
  [[nodiscard]] std::shared_ptr<const TensorPack> pack(int i, int candidate) const override;
  [[nodiscard]] Outputs run(int candidate, const Packs& packs, IsaSet isa) const override;
  [[nodiscard]] bool accurate(const Outputs& stock, const Outputs& result, int candidate) const override;
};

}  // namespace ipexrun::preload
