// One product x[M,K] * w[K,N] (+ bias[N]), or a batch of them, as the adapters found it in the user's call; and the candidates
// that can compute it.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <memory>

#include "preload/plugin/tier_state.h"

namespace ipexrun::preload {

enum class Op : int {
#define IPEXRUN_OP(id, name, adapter, dtypes, weights) id,
#include "preload/plugin/ops.def"
#undef IPEXRUN_OP
};
const char* op_name(Op op) noexcept;

/// Tensors are the user's; the call outlives none of them. Rows of x are `lda` elements apart, its columns adjacent.
struct LinearCall {
  Op op = Op::kMm;
  const at::Tensor* x = nullptr;     ///< [M,K], or [B,M,K] for bmm
  const at::Tensor* w = nullptr;     ///< [K,N], or [B,K,N] for bmm
  const at::Tensor* bias = nullptr;  ///< [N], null = none
  at::ScalarType dtype = at::kFloat;
  bool batched = false;    ///< a bmm whose right operand differs from batch to batch: no weight
  std::int64_t batch = 1;  ///< of a batched call; a folded bmm has its batch in m
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t lda = 0;
  std::int64_t stride_k = 0;  ///< of w, elements
  std::int64_t stride_n = 0;
  char x_layout = 'c';  ///< letters of SiteKey::layouts
  char w_layout = 'c';

  [[nodiscard]] bool folded() const { return op == Op::kBmm && !batched; }
  [[nodiscard]] at::Tensor x2d() const;
  [[nodiscard]] at::Tensor w2d() const;
  [[nodiscard]] at::Tensor in_shape_of_stock(const at::Tensor& product) const;
};

/// A packed weight in the layout of one candidate.
class TensorPack final : public Pack {
 public:
  explicit TensorPack(at::Tensor packed, std::size_t bytes) : packed_(std::move(packed)), bytes_(bytes) {}
  [[nodiscard]] std::size_t size_bytes() const noexcept override { return bytes_; }
  [[nodiscard]] const at::Tensor& packed() const { return packed_; }

 private:
  at::Tensor packed_;
  std::size_t bytes_;
};

/// Numbers of the candidates that fit such a call under the tier's options, in racing order.
std::vector<int> candidates_for(const LinearCall& call, const TierOptions& options);

/// Packs the call's weight for `candidate`; may throw.
std::shared_ptr<const TensorPack> pack_weight(const LinearCall& call, int candidate);

/// Computes the call; the result has the dtype, shape and strides of stock's. `pack` is null for a batched call. May throw; an
/// undefined tensor means that the candidate could not.
at::Tensor run_candidate(const LinearCall& call, int candidate, const TensorPack* pack, IsaSet isa);

/// Forgets nothing and registers nothing: looks up the stock operators that candidates use; false when this torch lacks one.
bool find_candidate_operators();

}  // namespace ipexrun::preload
