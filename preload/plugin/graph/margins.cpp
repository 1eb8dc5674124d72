#include "preload/plugin/graph/margins.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <cmath>

#include "preload/plugin/graph/compare.h"
#include "preload/plugin/tier.h"
#include "preload/select/small_samples.h"

namespace ipexrun::preload::graph {
namespace {

constexpr double kFloat32Error = 1e-5;   // relative: what was not rounded to bf16 stays below it
constexpr std::size_t kMostNotes = 256;  // calls: after so many the size of errors is known

struct Samples {
  std::int64_t count = 0;    ///< 0: not asked
  std::int64_t numbers = 0;  ///< of one
};

Samples samples_of(const std::optional<at::Tensor>& result) {
  if (!result || !result->defined() || result->numel() == 0) return {};
  if (result->scalar_type() != at::kFloat && result->scalar_type() != at::kDouble) return {};
  if (result->layout() != at::kStrided || !result->device().is_cpu()) return {};
  const std::int64_t count = result->dim() > 1 ? result->size(0) : 1;
  const std::int64_t numbers = result->numel() / count;
  return numbers > Margins::kMostNumbers ? Samples{} : Samples{count, numbers};
}

/// Calls with the sum of squares of each sample; false once it says so.
template <typename T, typename Visit>
bool each_sample(const T* values, Samples samples, Visit visit) {
  for (std::int64_t i = 0; i < samples.count; ++i, values += samples.numbers) {
    double squares = 0;
    for (std::int64_t k = 0; k < samples.numbers; ++k) squares += static_cast<double>(values[k]) * static_cast<double>(values[k]);
    if (!visit(squares)) return false;
  }
  return true;
}

template <typename Visit>
bool each_sample(const at::Tensor& result, Samples samples, Visit visit) {
  if (!result.is_contiguous()) return each_sample(result.contiguous(), samples, visit);
  return result.scalar_type() == at::kFloat ? each_sample(result.const_data_ptr<float>(), samples, visit)
                                            : each_sample(result.const_data_ptr<double>(), samples, visit);
}

}  // namespace

void Margins::note(const Results& stock, const Results& mine) {
  const TierOff inner_calls_are_stock;
  const at::AutoDispatchBelowADInplaceOrView below;
  const std::unique_lock<std::mutex> hold(mutex_, std::try_to_lock);
  if (!hold || made_.size() == kMostNotes) return;
  const ByResult* before = now_.load(std::memory_order_relaxed);
  auto by_result = before == nullptr ? std::make_unique<ByResult>() : std::make_unique<ByResult>(*before);
  by_result->resize(std::max(by_result->size(), mine.size()));
  for (std::size_t i = 0; i < std::min(stock.size(), mine.size()); ++i) {
    const Samples samples = samples_of(mine[i]);
    if (samples.count == 0 || !stock[i] || stock[i]->sizes() != mine[i]->sizes()) continue;
    Errors& errors = (*by_result)[i];
    each_sample(*stock[i], samples, [&](double squares) {
      if (std::isfinite(squares)) errors.truth += squares;
      return true;
    });
    each_sample(mine[i]->to(at::kDouble) - stock[i]->to(at::kDouble), samples, [&](double squares) {
      if (!std::isfinite(squares)) return true;
      errors.squares += squares;
      errors.counted += static_cast<std::uint64_t>(samples.numbers);
      errors.worst = std::max(errors.worst, squares / static_cast<double>(samples.numbers));
      return true;
    });
  }
  made_.push_back(std::move(by_result));
  now_.store(made_.back().get(), std::memory_order_release);
}

bool Margins::cover(const Results& mine) const {
  const at::AutoDispatchBelowADInplaceOrView below;
  const ByResult* known = now_.load(std::memory_order_acquire);
  if (known == nullptr) return true;
  for (std::size_t i = 0; i < std::min(known->size(), mine.size()); ++i) {
    const Errors& errors = (*known)[i];
    // What float32 rounds scales with what it is added to: no sample is too small for it.
    const bool rounded = errors.squares > kFloat32Error * kFloat32Error * errors.truth;
    const Samples samples = rounded ? samples_of(mine[i]) : Samples{};
    if (samples.count == 0) continue;
    const double bound = error_norm_bound(errors.squares, errors.counted, static_cast<std::uint64_t>(samples.numbers));
    const double least = std::max(bound, std::sqrt(errors.worst * static_cast<double>(samples.numbers))) / kModuleBf16Error;
    const double least_squares = least * least;
    // Zeros alone are what a mask leaves; a bound that fails for NaN would send such results away for ever.
    if (!each_sample(*mine[i], samples, [&](double squares) { return squares == 0 || !(squares < least_squares); })) return false;
  }
  return true;
}

}  // namespace ipexrun::preload::graph
