// Places at which results are compared with fp64.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "preload/select/accuracy.h"

namespace ipexrun::preload {

inline constexpr std::int64_t kSampledProducts = 1'000'000;  ///< multiply-adds in fp64 that one check may cost: about a millisecond

/// Calls visit(index) for `count` indices spread evenly over [0, size), the first and the last included.
template <typename Visit>
void spread(std::int64_t size, std::int64_t count, Visit visit) {
  for (std::int64_t i = 0; i < count; ++i) visit(count == 1 ? 0 : i * (size - 1) / (count - 1));
}

/// The accuracy rule for one result: values at sampled places against truth, then the whole against stock, both dense and in one order.
class Samples {
 public:
  template <typename T>
  void add(double truth, T stock, T candidate) {
    truth_.push_back(truth);
    stock_.push_back(static_cast<double>(stock));
    candidate_.push_back(static_cast<double>(candidate));
  }

  /// `rows`: how many samples of equal length were added; `count`: elements of the whole.
  template <typename T>
  [[nodiscard]] bool pass(std::int64_t rows, const T* stock, const T* candidate, std::int64_t count, Precision precision) const {
    const Accuracy sampled = check_accuracy(truth_, stock_, candidate_, static_cast<std::size_t>(rows), precision);
    if (!sampled.pass) return false;
    // Whole numbers, or rows that ones and zeros pick: what is exact with stock is exact with a candidate, also when such numbers are
    // larger.
    if (sampled.exact && (rounds<T>(precision) || !std::equal(stock, stock + count, candidate))) return false;
    Agreement whole;
    whole.add_all(stock, candidate, static_cast<std::size_t>(count));
    return whole.holds(sampled.stock_error, precision);
  }

 private:
  /// Operands of float32 were rounded to bf16 on the way.
  template <typename T>
  static constexpr bool rounds(Precision precision) {
    return std::is_same_v<T, float> && precision == Precision::kBf16Op;
  }

  std::vector<double> truth_;
  std::vector<double> stock_;
  std::vector<double> candidate_;
};

}  // namespace ipexrun::preload
