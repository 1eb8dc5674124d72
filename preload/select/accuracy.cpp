#include "preload/select/accuracy.h"

#include <cmath>
#include <limits>

namespace ipexrun::preload {
namespace {

/// Same kind of number: both finite, both NaN, or the same infinity.
bool same_kind(double a, double b) {
  if (std::isfinite(a)) return std::isfinite(b);
  if (std::isnan(a)) return std::isnan(b);
  return a == b;
}

struct Sums {
  double truth = 0;
  double stock = 0;
  double candidate = 0;

  void add(const Sums& other) {
    truth += other.truth;
    stock += other.stock;
    candidate += other.candidate;
  }
};

double relative(double error, double truth) {
  if (error == 0) return 0;
  return truth > 0 ? std::sqrt(error / truth) : std::numeric_limits<double>::infinity();
}

/// Judges one sample; keeps the one with the largest excess over its bound in `worst`.
void judge(const Sums& sums, double t, double* excess, Accuracy* worst) {
  const double stock = relative(sums.stock, sums.truth);
  const double candidate = relative(sums.candidate, sums.truth);
  const double bound = 2 * stock + t;
  if (!(candidate <= bound)) worst->pass = false;
  const double over = candidate <= bound ? candidate - bound : std::numeric_limits<double>::max();
  if (over >= *excess) {
    *excess = over;
    worst->stock_error = stock;
    worst->candidate_error = candidate;
  }
}

}  // namespace

Accuracy check_accuracy(std::span<const double> truth, std::span<const double> stock, std::span<const double> candidate,
                        std::size_t samples, Precision precision) {
  Accuracy result;
  if (truth.size() != stock.size() || truth.size() != candidate.size() || samples == 0 || truth.size() % samples != 0) return result;
  result.pass = true;
  const double t = tolerance(precision);
  const std::size_t length = truth.size() / samples;
  double excess = -std::numeric_limits<double>::infinity();
  Sums whole;
  for (std::size_t sample = 0; sample < samples; ++sample) {
    Sums sums;
    for (std::size_t i = sample * length; i < (sample + 1) * length; ++i) {
      if (!same_kind(stock[i], candidate[i])) result.positions_equal = false;
      if (!std::isfinite(stock[i]) || !std::isfinite(candidate[i]) || !std::isfinite(truth[i])) continue;
      const double stock_off = stock[i] - truth[i];
      const double candidate_off = candidate[i] - truth[i];
      sums.truth += truth[i] * truth[i];
      sums.stock += stock_off * stock_off;
      sums.candidate += candidate_off * candidate_off;
    }
    judge(sums, t, &excess, &result);
    whole.add(sums);
  }
  judge(whole, t, &excess, &result);
  if (!result.positions_equal) result.pass = false;
  result.exact = whole.stock == 0 && whole.truth > 0;
  return result;
}

void Agreement::add(double stock, double candidate) {
  if (!std::isfinite(stock) || !std::isfinite(candidate)) {
    if (!same_kind(stock, candidate)) positions_equal_ = false;
    return;
  }
  stock_ += stock * stock;
  apart_ += (candidate - stock) * (candidate - stock);
}

bool Agreement::holds(double stock_error, Precision precision) const {
  return positions_equal_ && relative(apart_, stock_) <= 3 * stock_error + tolerance(precision);
}

}  // namespace ipexrun::preload
