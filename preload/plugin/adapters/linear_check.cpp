// The accuracy rule for products: rows and columns spread over the result against fp64, the whole result against stock's.
#include "preload/plugin/adapters/linear_call.h"

#include <cmath>

#include "preload/plugin/adapters/sampling.h"

namespace ipexrun::preload {
namespace {

constexpr std::int64_t kSampledRows = 4;

}  // namespace

template <typename T>
bool LinearCall::accurate_as(const at::Tensor& stock, const at::Tensor& candidate, Precision precision) const {
  const T* x_data = x->const_data_ptr<T>();
  const T* w_data = w->const_data_ptr<T>();
  const T* bias_data = bias == nullptr ? nullptr : bias->const_data_ptr<T>();
  const at::Tensor stock_rows = stock.contiguous();
  const at::Tensor candidate_rows = candidate.contiguous();
  const at::Tensor added = addend == nullptr ? at::Tensor() : addend->expand(stock.sizes()).contiguous();
  const T* s = stock_rows.const_data_ptr<T>();
  const T* c = candidate_rows.const_data_ptr<T>();
  const T* a = addend == nullptr ? nullptr : added.const_data_ptr<T>();
  const std::int64_t rows = batch * m;
  const std::int64_t sampled_rows = std::min(rows, kSampledRows);
  const std::int64_t columns = std::clamp<std::int64_t>(kSampledProducts / (sampled_rows * k), 1, n);
  Samples samples;
  spread(rows, sampled_rows, [&](std::int64_t row) {
    const std::int64_t in_batch = row / m;
    const T* x_row = batched ? x_data + in_batch * x->stride(0) + (row % m) * lda : x_data + row * lda;
    const T* w_batch = batched ? w_data + in_batch * w->stride(0) : w_data;
    spread(n, columns, [&](std::int64_t column) {
      const T* w_column = w_batch + column * stride_n;
      double sum = 0;
      for (std::int64_t i = 0; i < k; ++i) sum += static_cast<double>(x_row[i * x_step]) * static_cast<double>(w_column[i * stride_k]);
      sum *= alpha;
      if (bias_data != nullptr) sum += static_cast<double>(bias_data[column]);
      if (a != nullptr) sum += beta * static_cast<double>(a[row * n + column]);
      samples.add(sum, s[row * n + column], c[row * n + column]);
    });
  });
  return samples.pass(sampled_rows, s, c, rows * n, precision);
}

/// The first row and the first column of both operands: of a gradient, one lies along its samples.
bool LinearCall::gradients_finite() const {
  if (dtype != at::kFloat) return true;
  const auto line = [](const float* data, std::int64_t step, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      if (!std::isfinite(data[i * step])) return false;
    }
    return true;
  };
  const float* x_data = x->const_data_ptr<float>();
  const float* w_data = w->const_data_ptr<float>();
  return line(x_data, x_step, k) && line(x_data, lda, m) && line(w_data, stride_k, k) && line(w_data, stride_n, n);
}

bool LinearCall::counts() const {
  if (dtype != at::kFloat) return false;
  constexpr std::int64_t kPlaces = 64;
  // Each place is in another row and column, so that neither a row of zeros nor a column of ones stands for all.
  const auto whole = [&](const float* data, std::int64_t rows, std::int64_t row, std::int64_t columns, std::int64_t column) {
    for (std::int64_t i = 0; i < kPlaces; ++i) {
      const float one = data[i * rows / kPlaces * row + i * 37 % kPlaces * columns / kPlaces * column];
      if (one != std::floor(one) || !std::isfinite(one)) return false;
    }
    return true;
  };
  return whole(x->const_data_ptr<float>(), m, lda, k, x_step) || whole(w->const_data_ptr<float>(), k, stride_k, n, stride_n);
}

bool LinearCall::accurate(const Outputs& stock, const Outputs& result, int candidate) const {
  if (dtype == at::kHalf) return accurate_as<at::Half>(stock.first, result.first, Precision::kFloat16Op);
  if (dtype == at::kBFloat16) return accurate_as<at::BFloat16>(stock.first, result.first, Precision::kBf16Op);
  return accurate_as<float>(stock.first, result.first, candidate_is_bf16(candidate) ? Precision::kBf16Op : Precision::kFloat32);
}

}  // namespace ipexrun::preload
