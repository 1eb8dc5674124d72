// The accuracy rule, in one place: whether a candidate's numbers may replace stock's. Tests use the same function.
//
// The error of a result is relative: e(x) = RMS(x - truth) / RMS(truth), 0/0 = 0. An absolute tolerance would pass an all-zero
// softmax over 30,000 classes. A candidate passes iff its NaN and infinities lie exactly where stock's do and
// e(candidate) <= 2 e(stock) + t, for the whole output and for every sample (row) of it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

namespace ipexrun::preload {

enum class Precision { kFloat64, kFloat32, kBf16Op, kFloat16Op };

/// t of the rule: what rounding alone may add.
constexpr double tolerance(Precision precision) {
  switch (precision) {
    case Precision::kFloat64:
      return 1e-13;
    case Precision::kFloat32:
      return 1e-6;
    case Precision::kFloat16Op:
      return 1e-3;
    case Precision::kBf16Op:
      break;
  }
  return 8e-3;
}

struct Accuracy {
  bool pass = false;
  double stock_error = 0;       ///< e(stock) of the sample that decided
  double candidate_error = 0;   ///< e(candidate) of the same sample
  bool positions_equal = true;  ///< NaN and infinities lie where stock's do
  bool exact = false;           ///< stock's numbers are the truth to the last bit, and not all of them zero
};

/// All three hold `samples` rows of equal length. Elements where stock is NaN or infinite count for positions only.
Accuracy check_accuracy(std::span<const double> truth, std::span<const double> stock, std::span<const double> candidate,
                        std::size_t samples, Precision precision);

/// A whole output beside stock's, element by element: what sampling rows against truth cannot see. The bound is the triangle
/// inequality of the rule: RMS(candidate - stock) <= (3 e(stock) + t) RMS(stock), and NaN and infinities lie where stock's do.
class Agreement {
 public:
  void add(double stock, double candidate);
  /// The same for `count` elements of a type that converts to double. Runs once over outputs of millions of elements inside the
  /// user's call, so whole blocks are summed in independent lanes; only a block that holds NaN or infinity is looked at singly.
  template <typename T>
  void add_all(const T* stock, const T* candidate, std::size_t count);
  [[nodiscard]] bool holds(double stock_error, Precision precision) const;

 private:
  double stock_ = 0;
  double apart_ = 0;
  bool positions_equal_ = true;
};

template <typename T>
void Agreement::add_all(const T* stock, const T* candidate, std::size_t count) {
  constexpr std::size_t kLanes = 8;
  constexpr std::size_t kBlock = 1024;
  for (std::size_t first = 0; first < count; first += kBlock) {
    const std::size_t end = std::min(first + kBlock, count);
    double squares[kLanes] = {};
    double apart[kLanes] = {};
    std::size_t i = first;
    for (; i + kLanes <= end; i += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        const auto s = static_cast<double>(stock[i + lane]);
        const double d = static_cast<double>(candidate[i + lane]) - s;
        squares[lane] += s * s;
        apart[lane] += d * d;
      }
    }
    double block_squares = 0;
    double block_apart = 0;
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      block_squares += squares[lane];
      block_apart += apart[lane];
    }
    if (std::isfinite(block_squares + block_apart)) {
      stock_ += block_squares;
      apart_ += block_apart;
    } else {
      i = first;
    }
    for (; i < end; ++i) add(static_cast<double>(stock[i]), static_cast<double>(candidate[i]));
  }
}

}  // namespace ipexrun::preload
