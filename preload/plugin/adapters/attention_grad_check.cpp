// The accuracy rule for the gradients of attention: rows of Q and of keys spread over the heads against fp64, from the result and logsumexp
// that the call was given; all three gradients as a whole against stock's.
#include <algorithm>
#include <cmath>

#include "preload/plugin/adapters/attention_grad_call.h"
#include "preload/plugin/adapters/sampling.h"

namespace ipexrun::preload {
namespace {

constexpr std::int64_t kSampledOfEach = 4;  ///< rows, of each gradient

/// A weight and the gradient of its score.
struct Weighed {
  double weight;
  double grad;
};

}  // namespace

template <typename T>
bool AttentionGradCall::accurate_as(const Outputs& stock, const Outputs& outputs, Precision precision) const {
  const std::int64_t heads = q->size(1);
  const std::int64_t rows = q->size(2);
  const std::int64_t keys = k->size(2);
  const std::int64_t depth = q->size(3);
  const auto row_of = [](const at::Tensor& tensor, std::int64_t batch, std::int64_t head, std::int64_t row) {
    return tensor.const_data_ptr<T>() + batch * tensor.stride(0) + head * tensor.stride(1) + row * tensor.stride(2);
  };
  const auto dot = [&](const T* a, const T* b) {
    double sum = 0;
    for (std::int64_t i = 0; i < depth; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    return sum;
  };
  const auto weigh = [&](std::int64_t batch, std::int64_t head, std::int64_t row, std::int64_t key) -> Weighed {
    if (causal && key > row) return {0, 0};
    const T* grad_row = row_of(*grad, batch, head, row);
    double score = dot(row_of(*q, batch, head, row), row_of(*k, batch, head, key)) * static_cast<double>(scale);
    if (mask != nullptr) {
      score += element(*mask, batch * mask_strides[0] + head * mask_strides[1] + row * mask_strides[2] + key * mask_strides[3]);
    }
    const double lse = element(*logsumexp, batch * logsumexp->stride(0) + head * logsumexp->stride(1) + row * logsumexp->stride(2));
    const double weight = std::exp(score - lse);
    const double delta = dot(grad_row, row_of(*result, batch, head, row));
    return {weight, weight * (dot(grad_row, row_of(*v, batch, head, key)) - delta) * static_cast<double>(scale)};
  };
  const std::int64_t all_heads = q->size(0) * heads;
  const auto sampled_of = [&](std::int64_t count, std::int64_t others) {
    return std::min(all_heads * count, std::clamp<std::int64_t>(kSampledProducts / (12 * others * depth), 2, kSampledOfEach));
  };
  Samples samples[3];
  std::vector<double> sums(2 * static_cast<std::size_t>(depth));
  const auto add = [&](int which, std::int64_t batch, std::int64_t head, std::int64_t row, const double* truth) {
    const T* s = row_of(which == 0 ? stock.first : stock.more[static_cast<std::size_t>(which - 1)], batch, head, row);
    const T* c = row_of(which == 0 ? outputs.first : outputs.more[static_cast<std::size_t>(which - 1)], batch, head, row);
    for (std::int64_t i = 0; i < depth; ++i) samples[which].add(truth[i], s[i], c[i]);
  };
  spread(all_heads * rows, sampled_of(rows, keys), [&](std::int64_t index) {
    const std::int64_t batch = index / (heads * rows);
    const std::int64_t head = index / rows % heads;
    std::fill(sums.begin(), sums.end(), 0.0);
    for (std::int64_t key = 0; key < keys; ++key) {
      const Weighed weighed = weigh(batch, head, index % rows, key);
      const T* k_row = row_of(*k, batch, head, key);
      for (std::int64_t i = 0; i < depth; ++i) sums[static_cast<std::size_t>(i)] += weighed.grad * static_cast<double>(k_row[i]);
    }
    add(0, batch, head, index % rows, sums.data());
  });
  spread(all_heads * keys, sampled_of(keys, rows), [&](std::int64_t index) {
    const std::int64_t batch = index / (heads * keys);
    const std::int64_t head = index / keys % heads;
    std::fill(sums.begin(), sums.end(), 0.0);
    double* of_v = sums.data() + depth;
    for (std::int64_t row = 0; row < rows; ++row) {
      const Weighed weighed = weigh(batch, head, row, index % keys);
      const T* q_row = row_of(*q, batch, head, row);
      const T* grad_row = row_of(*grad, batch, head, row);
      for (std::int64_t i = 0; i < depth; ++i) {
        sums[static_cast<std::size_t>(i)] += weighed.grad * static_cast<double>(q_row[i]);
        of_v[i] += weighed.weight * static_cast<double>(grad_row[i]);
      }
    }
    add(1, batch, head, index % keys, sums.data());
    add(2, batch, head, index % keys, of_v);
  });
  // Judged together: where a weight is 1, under causal the first row's, the gradient is a difference of equal numbers and all rounding.
  const auto good = [&](int which, const at::Tensor& s, const at::Tensor& c) {
    return samples[which].pass(1, s.const_data_ptr<T>(), c.const_data_ptr<T>(), s.numel(), precision);
  };
  return good(0, stock.first, outputs.first) && good(1, stock.more[0], outputs.more[0]) && good(2, stock.more[1], outputs.more[1]);
}

bool AttentionGradCall::accurate(const Outputs& stock, const Outputs& outputs, int /*candidate*/) const {
  return q->scalar_type() == at::kBFloat16 ? accurate_as<at::BFloat16>(stock, outputs, Precision::kBf16Op)
                                           : accurate_as<float>(stock, outputs, Precision::kFloat32);
}

}  // namespace ipexrun::preload
