#include "preload/plugin/graph/compare.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>

#include "preload/plugin/tier.h"

namespace ipexrun::preload::graph {
namespace {

bool same_face(const at::Tensor& stock, const at::Tensor& mine) {
  return stock.sizes() == mine.sizes() && stock.strides() == mine.strides() && stock.scalar_type() == mine.scalar_type();
}

/// [samples, elements of one] in double; a complex number is two of them.
at::Tensor rows(const at::Tensor& tensor) {
  if (tensor.is_complex()) return rows(at::view_as_real(tensor.resolve_conj()));
  const std::int64_t samples = tensor.dim() > 1 && tensor.size(0) > 0 ? tensor.size(0) : 1;
  return tensor.to(at::kDouble).reshape({samples, -1});
}

/// [samples], contiguous in the memory of the CPU.
at::Tensor per_sample(const at::Tensor& values) { return values.sum(1).cpu().contiguous(); }

constexpr double kUsableTruth = 1e-2;  // float64 that is this far from stock computed something else

/// RMS(values - truth) / RMS(truth) of each sample.
at::Tensor errors(const at::Tensor& values, const at::Tensor& truth) {
  const at::Tensor apart = (values - truth).square().sum(1);
  return at::where(apart == 0, at::zeros_like(apart), (apart / truth.square().sum(1)).sqrt());
}

/// How far the error of the worst sample exceeds twice stock's own, by results in float64; `otherwise` where these say nothing.
double beyond_stock(const at::Tensor& stock, const at::Tensor& found, const at::Tensor& finite, const at::Tensor& exact, double otherwise) {
  if (exact.sizes() != finite.sizes() || !at::equal(finite, exact.isfinite())) return otherwise;
  const at::Tensor truth = at::where(finite, exact, at::zeros_like(exact));
  const at::Tensor own = errors(stock, truth);
  if (!(own.max().item<double>() < kUsableTruth)) return otherwise;
  return std::max((errors(found, truth) - 2 * own).max().item<double>(), 0.0);
}

/// Of one sample.
struct Sums {
  double apart = 0;  ///< squares of mine - stock
  double stock = 0;  ///< squares
  double mine = 0;   ///< squares
  double along = 0;  ///< products
};

template <typename T>
Sums sums_of(const T* stock, const T* mine, std::int64_t count) {
  constexpr std::int64_t kLanes = 8;
  double apart[kLanes] = {};
  double truth[kLanes] = {};
  double found[kLanes] = {};
  double along[kLanes] = {};
  const auto add = [&](std::int64_t lane, std::int64_t i) {
    const auto s = static_cast<double>(stock[i]);
    const auto m = static_cast<double>(mine[i]);
    apart[lane] += (m - s) * (m - s);
    truth[lane] += s * s;
    found[lane] += m * m;
    along[lane] += s * m;
  };
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) add(lane, i + lane);
  }
  for (; i < count; ++i) add(0, i);
  Sums sums;
  for (std::int64_t lane = 0; lane < kLanes; ++lane) {
    sums.apart += apart[lane];
    sums.stock += truth[lane];
    sums.mine += found[lane];
    sums.along += along[lane];
  }
  return sums;
}

void note(const Sums& sums, double* error, Likeness* worst) {
  if (sums.apart == 0) return;
  *error = std::max(*error, std::sqrt(sums.apart / sums.stock));  // infinite where the truth is 0
  const double lengths = std::sqrt(sums.stock * sums.mine);
  worst->cosine = std::min(worst->cosine, lengths > 0 ? sums.along / lengths : 0);
}

/// Whether each sample fills memory of its own, one after the other, in whatever order its elements lie.
bool is_dense_by_samples(const at::Tensor& tensor) {
  return tensor.is_contiguous() ||
         (tensor.dim() > 1 && tensor.is_non_overlapping_and_dense() && tensor.stride(0) * tensor.size(0) == tensor.numel());
}

/// In one pass over results as they lie: tensors in double, one for each step, take tens of times as long where results are millions of
/// elements. False where that cannot be: they lie otherwise, or hold what is no number.
template <typename T>
bool judged_in_place(const at::Tensor& stock, const at::Tensor& mine, double* error, Likeness* worst) {
  const std::int64_t samples = stock.dim() > 1 ? stock.size(0) : 1;
  const std::int64_t count = stock.numel() / samples;
  const T* const a = stock.const_data_ptr<T>();
  const T* const b = mine.const_data_ptr<T>();
  Likeness found = *worst;
  double largest = 0;
  for (std::int64_t i = 0; i < samples; ++i) {
    const Sums sums = sums_of(a + i * count, b + i * count, count);
    if (!std::isfinite(sums.stock) || !std::isfinite(sums.mine)) return false;
    note(sums, &largest, &found);
  }
  *error = largest;
  *worst = found;
  return true;
}

bool judged_in_place(const at::Tensor& stock, const at::Tensor& mine, double* error, Likeness* worst) {
  if (!stock.device().is_cpu() || !mine.device().is_cpu() || stock.is_neg() || mine.is_neg() || !is_dense_by_samples(stock)) return false;
  switch (stock.scalar_type()) {
    case at::kFloat:
      return judged_in_place<float>(stock, mine, error, worst);
    case at::kDouble:
      return judged_in_place<double>(stock, mine, error, worst);
    case at::kBFloat16:
      return judged_in_place<c10::BFloat16>(stock, mine, error, worst);
    case at::kHalf:
      return judged_in_place<c10::Half>(stock, mine, error, worst);
    default:
      return false;
  }
}

/// The largest of whole numbers; 0 where there are others, fractions among the first elements mostly, so that this seldom looks far, or
/// where numbers are so large that the type has no fractions there.
double largest_whole(const at::Tensor& stock) {
  if (stock.is_complex() || stock.is_neg()) return 0;
  const at::Tensor values =
      stock.is_non_overlapping_and_dense() ? stock.as_strided({stock.numel()}, {1}, stock.storage_offset()) : stock.reshape({-1});
  constexpr std::int64_t kFirst = 256;
  const auto whole = [](const at::Tensor& part) { return at::equal(part, part.round()); };
  if (!whole(values.slice(0, 0, kFirst)) || !whole(values)) return 0;
  const int digits = stock.scalar_type() == at::kBFloat16 ? 8
                     : stock.scalar_type() == at::kHalf   ? 11
                     : stock.scalar_type() == at::kFloat  ? 24
                                                          : 53;
  const double largest = values.abs().max().item<double>();
  return largest < std::ldexp(1.0, digits - 3) ? largest : 0;
}

/// A program that gets counts, votes, numbers of a table compares them.
bool is_whole(const at::Tensor& stock) { return largest_whole(stock) > 0; }

void judge(const at::Tensor& stock, const at::Tensor& mine, const std::optional<at::Tensor>& exact, Likeness* worst) {
  if (stock.numel() == 0) return;
  if (double error = 0; !exact && judged_in_place(stock, mine, &error, worst)) {
    worst->error = std::max(worst->error, error);
    if (error > 0 && is_whole(stock)) worst->same_kind = false;
    return;
  }
  at::Tensor truth = rows(stock);
  at::Tensor found = rows(mine);
  const at::Tensor finite = truth.isfinite();
  if (!at::equal(finite, found.isfinite())) {
    worst->same_kind = false;
    return;
  }
  if (!finite.all().item<bool>()) {
    const at::Tensor no_number = finite.logical_not();
    const at::Tensor a = truth.masked_select(no_number);
    const at::Tensor b = found.masked_select(no_number);
    if (!at::equal(a.isnan(), b.isnan()) || !at::equal(a.nan_to_num(), b.nan_to_num())) {
      worst->same_kind = false;
      return;
    }
    const at::Tensor zero = at::zeros_like(truth);
    truth = at::where(finite, truth, zero);
    found = at::where(finite, found, zero);
  }
  const at::Tensor apart = per_sample((found - truth).square());
  const auto samples = apart.size(0);
  const double* const off = apart.const_data_ptr<double>();
  if (std::all_of(off, off + samples, [](double one) { return one == 0; })) return;
  if (is_whole(stock)) {
    worst->same_kind = false;
    return;
  }
  const at::Tensor size = per_sample(truth.square());
  const at::Tensor other = per_sample(found.square());
  const at::Tensor dot = per_sample(truth * found);
  const double* const norm = size.const_data_ptr<double>();
  const double* const length = other.const_data_ptr<double>();
  const double* const along = dot.const_data_ptr<double>();
  double error = 0;
  for (std::int64_t i = 0; i < samples; ++i) {  // a tensor may have thousands of samples: an operator for each takes seconds
    note({off[i], norm[i], length[i], along[i]}, &error, worst);
  }
  if (exact && error > 0) error = beyond_stock(truth, found, finite, rows(*exact), error);
  worst->error = std::max(worst->error, error);
}

}  // namespace

bool counts(const std::optional<at::Tensor>& result) {
  const TierOff inner_calls_are_stock;
  const at::AutoDispatchBelowADInplaceOrView below;
  return result && result->defined() && result->numel() > 0 && result->is_floating_point() && largest_whole(*result) > 1;
}

Likeness compare(const std::vector<std::optional<at::Tensor>>& stock, const std::vector<std::optional<at::Tensor>>& mine,
                 const std::vector<std::optional<at::Tensor>>& exact) {
  const TierOff inner_calls_are_stock;
  const at::AutoDispatchBelowADInplaceOrView below;
  Likeness worst;
  worst.same_kind = stock.size() == mine.size();
  for (std::size_t i = 0; i < stock.size() && worst.same_kind; ++i) {
    if (stock[i].has_value() != mine[i].has_value()) {
      worst.same_kind = false;
    } else if (stock[i].has_value()) {
      if (!same_face(*stock[i], *mine[i])) {
        worst.same_kind = false;
      } else if (stock[i]->is_floating_point() || stock[i]->is_complex()) {
        judge(*stock[i], *mine[i], exact.size() == stock.size() ? exact[i] : std::nullopt, &worst);
      } else {
        worst.same_kind = at::equal(*stock[i], *mine[i]);
      }
    }
  }
  return worst;
}

}  // namespace ipexrun::preload::graph
