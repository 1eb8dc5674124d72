// The accuracy rule for attention: rows spread over the heads against fp64, the whole result and every logsumexp against stock's.
#include <algorithm>
#include <cmath>
#include <limits>

#include "preload/plugin/adapters/attention_call.h"
#include "preload/plugin/adapters/sampling.h"

namespace ipexrun::preload {
namespace {

constexpr std::int64_t kSampledRows = 8;

/// The logsumexp feeds the backward pass: few numbers, compared one by one. Stock's sums of bf16 products are rounded to bf16 where
/// it has a single row.
bool close_to_stock(const at::Tensor& stock, const at::Tensor& result, float bound) {
  const auto* s = stock.const_data_ptr<float>();
  const auto* c = result.const_data_ptr<float>();
  for (std::int64_t i = 0; i < stock.numel(); ++i) {
    if (std::isnan(s[i]) != std::isnan(c[i])) return false;
    if (std::abs(c[i] - s[i]) > bound * (1 + std::abs(s[i]))) return false;
  }
  return true;
}

}  // namespace

template <typename T>
bool AttentionCall::accurate_as(const Outputs& stock_outputs, const Outputs& outputs, Precision precision) const {
  const at::Tensor& stock = stock_outputs.first;
  const at::Tensor& candidate = outputs.first;
  const at::Tensor& stock_lse = stock_outputs.more[0];
  const at::Tensor& candidate_lse = outputs.more[0];
  const std::int64_t heads = q->size(1);
  const std::int64_t rows = q->size(2);
  const std::int64_t keys = k->size(2);
  const std::int64_t depth = q->size(3);
  const std::int64_t all = q->size(0) * heads * rows;
  const T* s = stock.const_data_ptr<T>();
  const T* c = candidate.const_data_ptr<T>();
  Samples samples;
  bool lse_good = true;
  const std::int64_t sampled = std::min(all, std::clamp<std::int64_t>(kSampledProducts / (2 * keys * depth), 2, kSampledRows));
  std::vector<double> weights(static_cast<std::size_t>(keys));
  std::vector<double> sums(static_cast<std::size_t>(depth));
  spread(all, sampled, [&](std::int64_t index) {
    const std::int64_t batch = index / (heads * rows);
    const std::int64_t head = index / rows % heads;
    const std::int64_t row = index % rows;
    const std::int64_t kv_head = head / (heads / k->size(1));
    const T* q_row = q->const_data_ptr<T>() + batch * q->stride(0) + head * q->stride(1) + row * q->stride(2);
    const T* k_head = k->const_data_ptr<T>() + batch * k->stride(0) + kv_head * k->stride(1);
    const T* v_head = v->const_data_ptr<T>() + batch * v->stride(0) + kv_head * v->stride(1);
    const std::int64_t visible = causal ? std::min(keys, row + 1) : keys;
    double largest = -std::numeric_limits<double>::infinity();
    for (std::int64_t key = 0; key < visible; ++key) {
      double score = 0;
      for (std::int64_t i = 0; i < depth; ++i) score += static_cast<double>(q_row[i]) * static_cast<double>(k_head[key * k->stride(2) + i]);
      score *= static_cast<double>(scale);
      if (mask != nullptr) {
        score += element(*mask, batch * mask_strides[0] + head * mask_strides[1] + row * mask_strides[2] + key * mask_strides[3]);
        score = static_cast<double>(static_cast<float>(score));  // beside the lowest float nothing else counts
      }
      weights[static_cast<std::size_t>(key)] = score;
      largest = std::isnan(score) || std::isnan(largest) ? std::numeric_limits<double>::quiet_NaN() : std::max(largest, score);
    }
    const bool nothing = std::isinf(largest) && largest < 0;
    double sum = nothing ? 1 : 0;
    std::fill(sums.begin(), sums.end(), 0.0);
    for (std::int64_t key = 0; key < visible; ++key) {
      const double weight = nothing ? 0 : std::exp(weights[static_cast<std::size_t>(key)] - largest);
      sum += weight;
      for (std::int64_t i = 0; i < depth; ++i) {
        sums[static_cast<std::size_t>(i)] += weight * static_cast<double>(v_head[key * v->stride(2) + i]);
      }
    }
    const double lse = (nothing ? 0 : largest) + std::log(sum);
    const std::int64_t lse_place = batch * stock_lse.stride(0) + head * stock_lse.stride(1) + row * stock_lse.stride(2);
    const double room = precision == Precision::kFloat32 || sizeof(T) == sizeof(at::BFloat16) ? 2e-5 : 2e-2;  // operands were rounded
    const double lse_bound = 2 * std::abs(element(stock_lse, lse_place) - lse) + room * (1 + std::abs(lse));
    lse_good = lse_good && !(std::abs(element(candidate_lse, lse_place) - lse) > lse_bound);
    const std::int64_t place = batch * stock.stride(0) + head * stock.stride(1) + row * stock.stride(2);
    for (std::int64_t i = 0; i < depth; ++i) samples.add(sums[static_cast<std::size_t>(i)] / sum, s[place + i], c[place + i]);
  });
  return lse_good && samples.pass(sampled, s, c, stock.numel(), precision);
}

bool AttentionCall::accurate(const Outputs& stock, const Outputs& result, int candidate) const {
  if (q->scalar_type() == at::kHalf) {
    return close_to_stock(stock.more[0], result.more[0], 5e-3f) && accurate_as<at::Half>(stock, result, Precision::kFloat16Op);
  }
  const bool bf16 = q->scalar_type() == at::kBFloat16;
  const Precision precision = bf16 || candidate == kOwnBf16 ? Precision::kBf16Op : Precision::kFloat32;
  if (!close_to_stock(stock.more[0], result.more[0], precision == Precision::kBf16Op ? 2e-2f : 2e-5f)) return false;
  return bf16 ? accurate_as<at::BFloat16>(stock, result, precision) : accurate_as<float>(stock, result, precision);
}

}  // namespace ipexrun::preload
