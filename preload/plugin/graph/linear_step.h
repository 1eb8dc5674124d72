// The step of a linear layer: kernels/linear.h on a weight that is packed once, with what follows in the same pass.
#pragma once

#include "preload/plugin/graph/duel.h"
#include "preload/plugin/graph/executor.h"
#include "preload/plugin/tier_state.h"

namespace ipexrun::preload::graph {

/// A weight as the right operand, [K, N].
struct Matrix {
  const at::Tensor& tensor;
  bool transposed;  ///< it lies as [N, K]

  [[nodiscard]] std::int64_t k() const { return tensor.size(transposed ? 1 : 0); }
  [[nodiscard]] std::int64_t n() const { return tensor.size(transposed ? 0 : 1); }
  [[nodiscard]] std::int64_t stride_k() const { return tensor.stride(transposed ? 1 : 0); }
  [[nodiscard]] std::int64_t stride_n() const { return tensor.stride(transposed ? 0 : 1); }
  [[nodiscard]] at::Tensor operand() const { return transposed ? tensor.t() : tensor; }
};

/// Ways of float32 as float32 beside stock's operators (0), of one pack.
inline constexpr int kVectors = 1;
inline constexpr int kParts = 2;  ///< linear_f32.h's parts
/// How many there are of such a product, stock's included.
int ways_of_exact(std::int64_t m, std::int64_t n, std::int64_t k, IsaSet isa);

/// For reports; null for none.
const char* name_of_exact(int way);

/// An undefined tensor for kNone and for None.
const at::Tensor& tensor_of(const Values& values, Value value);
/// Not initialized, [rows, columns]; `apart`: with a line of cache between two rows.
at::Tensor room_for(std::int64_t rows, std::int64_t columns, at::ScalarType dtype, bool apart);
/// Of a dtype and a kind that kernels/linear.h reads.
bool of_kernel(const at::Tensor& tensor);
/// What the table knows of the weight now. The op tier sees the same operand, so their packs are the same. `use`: how it was asked, for
/// who packs; null = not wanted.
WeightState known_weight(TierState& state, const Matrix& weight, WeightUse* use);

/// The packed weight is the op tier's own (WeightTable): made at the first run, checked at each, and gone when the program changes the
/// weight. Without room for it, or when x has a form that the kernel does not read, the same is computed by stock's operators.
class LinearStep final : public Step {
 public:
  explicit LinearStep(const Node& node);
  void run(Values& values) const override;
  [[nodiscard]] const char* kernel() const override { return name_of_exact(tried_.last()); }
  /// float32 as float32: who multiplies x; 0: stock's operators, kVectors or kParts: our kernel, -1: not known yet.
  [[nodiscard]] int way_of(const at::Tensor& x, const Matrix& weight) const;
  /// The pack for our kernel; an operator outside that answers with the same one makes it again.
  static void forget_exact(const Matrix& weight);

 private:
  [[nodiscard]] Duel* duel(const at::Tensor& x, const Matrix& weight) const;
  [[nodiscard]] bool run_own(const at::Tensor& x, const Matrix& weight, const at::Tensor& bias, const at::Tensor& other,
                             at::Tensor* out) const;
  /// float32 as float32: our kernel, by vectors or by tiles, or stock's operators (under ipexrun those of the op tier): measured.
  [[nodiscard]] at::Tensor run_exact(const at::Tensor& x, const Matrix& weight, const at::Tensor& bias, const at::Tensor& other) const;
  [[nodiscard]] at::Tensor run_own_exact(const at::Tensor& x, const Matrix& weight, const at::Tensor& bias, const at::Tensor& other,
                                         bool parts) const;
  [[nodiscard]] at::Tensor run_stock(const at::Tensor& x, const Matrix& weight, const at::Tensor& bias, const at::Tensor& other) const;

  Linear linear_;
  mutable WaysTried tried_;  ///< of float32 as float32
  std::vector<Argument> shape_;
  Value output_;
};

}  // namespace ipexrun::preload::graph
