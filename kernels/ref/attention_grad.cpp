// The truth of attention_grad: the formulas in doubles, one rounding to fp32 and, for bf16, one more.
#include "kernels/ref/attention_grad.h"

#include <algorithm>
#include <cmath>

#include "kernels/ref/element.h"

namespace ipexrun::kernels::ref {
namespace {

struct Unit {
  const AttentionGradArgs& args;
  std::int64_t batch;
  std::int64_t kv_head;
  double* grad_k;
  double* grad_v;

  [[nodiscard]] double of(const Heads& heads, std::int64_t head, std::int64_t row, std::int64_t i) const {
    return get(heads.data, args.forward.dtype, batch * heads.batch_stride + head * heads.head_stride + row * heads.row_stride + i);
  }
  void put(const HeadsOut& heads, std::int64_t head, std::int64_t row, std::int64_t i, double value) const {
    ref::put(heads.data, args.forward.dtype, batch * heads.batch_stride + head * heads.head_stride + row * heads.row_stride + i, value);
  }
};

/// One row of one head of Q: its gradient, and what it adds to those of K and V.
void row_of(const Unit& unit, std::int64_t head, std::int64_t row, double* grad_q) {
  const AttentionArgs& f = unit.args.forward;
  const Heads out{f.out, f.out_batch_stride, f.out_head_stride, f.out_row_stride};
  const auto lse = static_cast<double>(f.logsumexp[unit.batch * f.lse_batch_stride + head * f.lse_head_stride + row * f.lse_row_stride]);
  double delta = 0;
  for (std::int64_t i = 0; i < f.depth; ++i) delta += unit.of(unit.args.grad_out, head, row, i) * unit.of(out, head, row, i);
  std::fill(grad_q, grad_q + f.depth, 0.0);
  for (std::int64_t key = 0; key < (f.causal ? std::min(f.keys, row + 1) : f.keys); ++key) {
    double score = 0;
    double product = 0;
    for (std::int64_t i = 0; i < f.depth; ++i) {
      score += unit.of(f.q, head, row, i) * unit.of(f.k, unit.kv_head, key, i);
      product += unit.of(unit.args.grad_out, head, row, i) * unit.of(f.v, unit.kv_head, key, i);
    }
    score *= static_cast<double>(f.scale);
    if (f.mask.data != nullptr) {
      score += get(f.mask.data, f.mask.dtype,
                   unit.batch * f.mask.batch_stride + head * f.mask.head_stride + row * f.mask.row_stride + key * f.mask.key_stride);
    }
    const double weight = std::exp(score - lse);
    const double grad = weight * (product - delta) * static_cast<double>(f.scale);
    for (std::int64_t i = 0; i < f.depth; ++i) {
      grad_q[i] += grad * unit.of(f.k, unit.kv_head, key, i);
      unit.grad_k[key * f.depth + i] += grad * unit.of(f.q, head, row, i);
      unit.grad_v[key * f.depth + i] += weight * unit.of(unit.args.grad_out, head, row, i);
    }
  }
  for (std::int64_t i = 0; i < f.depth; ++i) unit.put(unit.args.grad_q, head, row, i, grad_q[i]);
}

}  // namespace

std::size_t attention_grad_scratch(const AttentionGradArgs& args) {
  return static_cast<std::size_t>((2 * args.forward.keys + 1) * args.forward.depth) * sizeof(double);
}

void attention_grad(const AttentionGradArgs& args, std::int64_t unit_begin, std::int64_t unit_end, void* scratch) {
  const AttentionArgs& f = args.forward;
  const std::int64_t group = f.heads / f.kv_heads;
  auto* grad_k = static_cast<double*>(scratch);
  double* grad_v = grad_k + f.keys * f.depth;
  for (std::int64_t index = unit_begin; index < unit_end; ++index) {
    const Unit unit{args, index / f.kv_heads, index % f.kv_heads, grad_k, grad_v};
    std::fill(grad_k, grad_k + 2 * f.keys * f.depth, 0.0);
    for (std::int64_t i = 0; i < group * f.rows; ++i) {
      row_of(unit, unit.kv_head * group + i / f.rows, i % f.rows, grad_v + f.keys * f.depth);
    }
    for (std::int64_t key = 0; key < f.keys; ++key) {
      for (std::int64_t i = 0; i < f.depth; ++i) {
        unit.put(args.grad_k, unit.kv_head, key, i, grad_k[key * f.depth + i]);
        unit.put(args.grad_v, unit.kv_head, key, i, grad_v[key * f.depth + i]);
      }
    }
  }
}

}  // namespace ipexrun::kernels::ref
