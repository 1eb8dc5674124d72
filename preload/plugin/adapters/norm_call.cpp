// Sites and the candidate of softmax and layer norm: our own vector code, with sums in fp32. No error of a row depends on other rows,
// so one check holds for the site.
#include "preload/plugin/adapters/norm_call.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_cpu_dispatch.h>

#include <algorithm>
#include <cmath>

#include "configs/contract/decision.h"
#include "kernels/normalize.h"
#include "preload/plugin/adapters/sampling.h"
#include "preload/plugin/candidate_kernels.h"
#include "preload/plugin/parallel.h"

namespace ipexrun::preload {
namespace {

constexpr std::int64_t kNormRows = 8;  ///< that a check samples

void softmax_truth(std::vector<double>* row) {
  const double largest = *std::max_element(row->begin(), row->end());
  double sum = 0;
  for (double& value : *row) sum += value = std::exp(value - largest);
  for (double& value : *row) value /= sum;
}

/// Of x, centred and scaled; weight and bias come after it.
void norm_truth(std::vector<double>* row, double eps) {
  const auto count = static_cast<double>(row->size());
  double mean = 0;
  for (const double value : *row) mean += value / count;
  double variance = 0;
  for (const double value : *row) variance += (value - mean) * (value - mean) / count;
  const double scale = 1 / std::sqrt(variance + eps);
  for (double& value : *row) value = (value - mean) * scale;
}

/// What the arguments of both kernels have in common.
template <typename Args>
Args args_of(const NormCall& call, const at::Tensor& result) {
  Args args;
  args.from = call.x->const_data_ptr();
  args.to = result.mutable_data_ptr();
  args.dtype = kernel_dtype(*call.x);
  args.rows = call.rows;
  args.columns = call.columns;
  return args;
}

bool stats_are_finite(const at::Tensor& rstd) {
  const float* first = rstd.const_data_ptr<float>();
  return std::all_of(first, first + rstd.numel(), [](float one) { return std::isfinite(one); });
}

}  // namespace

at::ScalarType NormCall::parameter_dtype() const {
  return gain != nullptr ? gain->scalar_type() : bias != nullptr ? bias->scalar_type() : x->scalar_type();
}

SiteId NormCall::site_id() const {
  SiteId id;
  id.op = static_cast<std::uint32_t>(op);
  id.form = static_cast<std::uint32_t>(x->scalar_type()) | static_cast<std::uint32_t>(parameter_dtype()) << 8 |
            (gain != nullptr ? 1u << 16 : 0) | (bias != nullptr ? 1u << 17 : 0);
  id.threads = at::get_num_threads();
  id.m = round_up_rows(rows);
  id.n = columns;
  return id;
}

SiteKey NormCall::site_key(const SiteId& id, const TierOptions& options) const {
  const auto word = [](at::ScalarType dtype) { return std::string(dtype == at::kFloat ? "f32" : "bf16"); };
  SiteKey key;
  key.op = op_name(op);
  key.dtypes = word(x->scalar_type());
  if (gain != nullptr) key.dtypes += ',' + word(gain->scalar_type());
  if (bias != nullptr) key.dtypes += ',' + word(bias->scalar_type());
  key.layouts = std::string("c") + (gain != nullptr ? "c" : "") + (bias != nullptr ? "c" : "");
  key.sizes = "rows=" + std::to_string(id.m) + ",columns=" + std::to_string(id.n);
  key.threads = id.threads;
  key.isa = level_name(options.isa);
  key.torch = options.torch_minor;
  return key;
}

std::vector<int> NormCall::candidates(const TierOptions& options) const {
  if (!kernels::normalize_supported(options.isa)) return {};
  return {kOwnF32};
}

Outputs NormCall::run_softmax(IsaSet isa) const {
  at::Tensor result = at::cpu::empty(x->sizes(), x->options());
  if (!kernels::softmax(args_of<kernels::SoftmaxArgs>(*this, result), torch_pool(), isa)) return {};
  return result;
}

Outputs NormCall::run_layer_norm(IsaSet isa) const {
  const at::ScalarType stats_dtype = parameter_dtype();
  std::vector<std::int64_t> stats_sizes(x->sizes().begin(), x->sizes().end());
  std::fill(stats_sizes.end() - normalized_dims, stats_sizes.end(), 1);
  at::Tensor result = at::cpu::empty(x->sizes(), x->options());
  at::Tensor mean = at::cpu::empty(stats_sizes, x->options().dtype(stats_dtype));
  at::Tensor rstd = at::cpu::empty(stats_sizes, x->options().dtype(stats_dtype));
  auto args = args_of<kernels::NormArgs>(*this, result);
  if (gain != nullptr) args.weight = gain->const_data_ptr();
  if (bias != nullptr) args.bias = bias->const_data_ptr();
  args.parameter_dtype = args.stats_dtype = kernel_dtype(mean);
  args.eps = eps;
  args.mean = mean.mutable_data_ptr();
  args.rstd = rstd.mutable_data_ptr();
  if (!kernels::layer_norm(args, torch_pool(), isa)) return {};
  if (stats_dtype == at::kFloat && !stats_are_finite(rstd)) return {};  // NaN, infinity, numbers too large to be squared: stock says where
  Outputs outputs(std::move(result));
  outputs.more = {std::move(mean), std::move(rstd)};
  return outputs;
}

Outputs NormCall::run(int /*candidate*/, const Packs& /*packs*/, IsaSet isa) const {
  return layer_norm ? run_layer_norm(isa) : run_softmax(isa);
}

template <typename T>
bool NormCall::accurate_as(const at::Tensor& stock, const at::Tensor& candidate, Precision precision) const {
  const T* from = x->const_data_ptr<T>();
  const T* s = stock.const_data_ptr<T>();
  const T* c = candidate.const_data_ptr<T>();
  Samples samples;
  const std::int64_t sampled = std::min(rows, kNormRows);
  spread(rows, sampled, [&](std::int64_t row) {
    std::vector<double> values(from + row * columns, from + (row + 1) * columns);
    if (layer_norm) {
      norm_truth(&values, eps);
    } else {
      softmax_truth(&values);
    }
    for (std::int64_t i = 0; i < columns; ++i) {
      double value = values[static_cast<std::size_t>(i)];
      if (gain != nullptr) value *= element(*gain, i);
      if (bias != nullptr) value += element(*bias, i);
      samples.add(value, s[row * columns + i], c[row * columns + i]);
    }
  });
  return samples.pass(sampled, s, c, rows * columns, precision);
}

bool NormCall::accurate(const Outputs& stock, const Outputs& result, int /*candidate*/) const {
  for (std::size_t i = 0; i < stock.more.size(); ++i) {
    if (!statistics_agree(stock.more[i], result.more[i])) return false;
  }
  if (x->scalar_type() == at::kBFloat16) return accurate_as<at::BFloat16>(stock.first, result.first, Precision::kBf16Op);
  return accurate_as<float>(stock.first, result.first, Precision::kFloat32);
}

}  // namespace ipexrun::preload
