// One product alpha * x[M,K] * w[K,N] + beta * addend, or a batch of them, as the adapters found it in the user's call.
#pragma once

#include "preload/plugin/op_call.h"

namespace ipexrun::preload {

/// Rows of x are `lda` elements apart, its columns `x_step`: adjacent, but for a batched x that is transposed.
class LinearCall final : public OpCall {
 public:
  static constexpr bool kInBackward = true;

  const at::Tensor* x = nullptr;       ///< [M,K], or [B,M,K]
  const at::Tensor* w = nullptr;       ///< [K,N], or [B,K,N]
  const at::Tensor* bias = nullptr;    ///< [N], alpha = beta = 1; null = none
  const at::Tensor* addend = nullptr;  ///< anything else that is added: broadcasts to the result; null = none
  const at::Tensor* out = nullptr;     ///< in-place and out= overloads: where the result goes
  double alpha = 1;
  double beta = 1;  ///< 0: the addend's NaN and infinities do not count either
  at::ScalarType dtype = at::kFloat;
  bool batched = false;    ///< a bmm whose right operand differs from batch to batch: no weight
  std::int64_t batch = 1;  ///< of a batched call; a folded bmm has its batch in m
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t lda = 0;
  std::int64_t x_step = 1;
  std::int64_t stride_k = 0;  ///< of w, elements
  std::int64_t stride_n = 0;
  char x_layout = 'c';  ///< letters of SiteKey::layouts
  char w_layout = 'c';

  /// A batch of products with one right operand: its rows are those of one larger product.
  [[nodiscard]] bool folded() const { return x->dim() == 3 && !batched; }
  /// Whether more than a bias is to be done to the product.
  [[nodiscard]] bool scaled() const { return addend != nullptr || alpha != 1; }

  [[nodiscard]] SiteId site_id() const override;
  [[nodiscard]] SiteKey site_key(const SiteId& id, const TierOptions& options) const override;
  [[nodiscard]] std::vector<int> candidates(const TierOptions& options) const override;
  [[nodiscard]] int weight_count() const override { return batched || training ? 0 : 1; }
  [[nodiscard]] const at::Tensor* weight(int /*i*/) const override { return w; }
  void weight_view(int i, WeightKey* key) const override;
  [[nodiscard]] std::shared_ptr<const TensorPack> pack(int i, int candidate) const override;
  [[nodiscard]] Outputs run(int candidate, const Packs& packs, IsaSet isa) const override;
  [[nodiscard]] bool accurate(const Outputs& stock, const Outputs& result, int candidate) const override;
  [[nodiscard]] bool gradients_finite() const override;
  [[nodiscard]] bool counts() const override;
  [[nodiscard]] bool delivers() const override { return out != nullptr; }
  void deliver(Outputs* results) const override;
  void deliver_aside(const Outputs& results) const override;

 private:
  [[nodiscard]] at::Tensor x2d() const { return folded() ? x->as_strided({m, k}, {lda, 1}) : *x; }
  [[nodiscard]] at::Tensor w2d() const { return folded() ? w->as_strided({k, n}, {stride_k, stride_n}) : *w; }
  [[nodiscard]] at::Tensor run_own(const TensorPack& pack, IsaSet isa) const;
  [[nodiscard]] at::Tensor run_own_f32(const TensorPack& pack, IsaSet isa) const;
  /// Adds and scales as well.
  [[nodiscard]] at::Tensor run_own_batched(bool bf16_inside, IsaSet isa) const;
  [[nodiscard]] at::Tensor run_onednn(const TensorPack& pack, at::ScalarType inside) const;
  [[nodiscard]] at::Tensor run_mkl(const TensorPack& pack) const;
  /// Stock's in bf16, on copies.
  [[nodiscard]] at::Tensor product_of_copies() const;
  [[nodiscard]] static at::Tensor in_bf16(const at::Tensor& from, std::vector<std::int64_t> sizes);
  [[nodiscard]] static at::Tensor part_of(const at::Tensor& tensor, at::IntArrayRef sizes);
  /// Nothing was packed before: of a training step.
  [[nodiscard]] at::Tensor run_own_unpacked(IsaSet isa) const;
  [[nodiscard]] std::vector<int> training_candidates(const TierOptions& options) const;
  [[nodiscard]] std::vector<int> float16_candidates(const TierOptions& options) const;
  [[nodiscard]] bool widens(const TierOptions& options) const;
  template <typename T>
  [[nodiscard]] bool accurate_as(const at::Tensor& stock, const at::Tensor& candidate, Precision precision) const;
};

/// Looks up the stock operators that candidates use; false when this torch lacks one, and those candidates are not offered.
bool find_linear_operators();

}  // namespace ipexrun::preload
