#include "preload/select/small_samples.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace ipexrun::preload {
namespace {

constexpr std::size_t kMostKinds = 64;  // programs whose sizes change in each call have many
constexpr std::size_t kMostErrors = 4096;
constexpr std::size_t kTail = 16;
constexpr double kEnough = 64;  // samples; the worst of fewer may be a lucky one

/// x such that a chi-squared variable of `freedom` degrees is below x in the share of cases that belongs to `deviations` of a normal one.
double chi_squared(double freedom, double deviations) {
  const double variance = 2 / (9 * freedom);
  const double root = std::max(1 - variance + deviations * std::sqrt(variance), 0.15);  // the method fails below it, for one or two degrees
  return freedom * root * root * root;
}

/// NaN wins.
double larger(double a, double b) { return a >= b || std::isnan(a) ? a : b; }

}  // namespace

double error_norm_bound(double squares, std::uint64_t counted, std::uint64_t numbers) noexcept {
  const double variance = squares / chi_squared(static_cast<double>(counted), -1.645);
  return std::sqrt(variance * chi_squared(static_cast<double>(numbers), 3.09));
}

void SampleErrors::add(std::uint64_t numbers, double error) {
  worst_ = larger(worst_, error);
  auto kind = std::find_if(kinds_.begin(), kinds_.end(), [&](const Kind& one) { return one.numbers == numbers; });
  if (kind == kinds_.end()) {
    if (kinds_.size() == kMostKinds) return;
    kind = kinds_.insert(kinds_.end(), {numbers, {}});
  }
  if (kind->errors.size() == kMostErrors || std::ranges::find(kind->errors, error) != kind->errors.end()) return;
  kind->errors.push_back(error);
}

void SampleErrors::add(const SampleErrors& others) {
  worst_ = larger(worst_, others.worst_);
  for (const Kind& kind : others.kinds_) {
    for (const double error : kind.errors) add(kind.numbers, error);
  }
}

std::size_t SampleErrors::samples() const noexcept {
  std::size_t count = 0;
  for (const Kind& kind : kinds_) count += kind.errors.size();
  return count;
}

double SampleErrors::at_least_with(double times_as_many) const {
  double worst = worst_;
  for (const Kind& kind : kinds_) {
    const double samples = std::max(static_cast<double>(kind.errors.size()) * times_as_many, 1.0);
    const double more = std::pow(1000 / samples * std::max(kEnough / samples, 1.0), 1 / static_cast<double>(kind.numbers));
    worst = larger(worst, *std::ranges::max_element(kind.errors) * std::max(more, 1.0));
  }
  return worst;
}

double SampleErrors::worst_of_a_thousand() const {
  double worst = worst_;
  if (!std::isfinite(worst)) return worst;
  for (const Kind& kind : kinds_) {
    std::vector<double> errors = kind.errors;
    std::ranges::sort(errors, std::greater<>());
    for (const std::size_t rank : {std::size_t{1}, std::max<std::size_t>(errors.size() / kTail, 1)}) {
      const double share = static_cast<double>(rank) / static_cast<double>(errors.size());
      const double lucky = std::max(kEnough / static_cast<double>(errors.size()), 1.0);
      const double more = std::pow(1000 * share * lucky, 1 / static_cast<double>(kind.numbers));
      worst = std::max(worst, errors[rank - 1] * std::max(more, 1.0));
    }
  }
  return worst;
}

}  // namespace ipexrun::preload
