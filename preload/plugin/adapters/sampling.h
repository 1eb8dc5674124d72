// Places at which results are compared with fp64.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "preload/select/accuracy.h"

namespace ipexrun::preload {

inline constexpr std::int64_t kSampledProducts = 1'000'000;  ///< multiply-adds in fp64 that one check may cost: about a millisecond
inline constexpr std::int64_t kSampledElements = 4096;       ///< of results whose elements cost little
inline constexpr std::int64_t kSampledPlaces = 8;            ///< pixels of a convolution, the corners of the batch included

/// Of a tensor of float32, float16 or bfloat16, by its place in memory.
inline double element(const at::Tensor& tensor, std::int64_t place) {
  if (tensor.scalar_type() == at::kHalf) return static_cast<double>(tensor.const_data_ptr<at::Half>()[place]);
  return tensor.scalar_type() == at::kFloat ? static_cast<double>(tensor.const_data_ptr<float>()[place])
                                            : static_cast<double>(tensor.const_data_ptr<at::BFloat16>()[place]);
}

/// Values equal, NaN where NaN is.
template <typename T>
bool same(const T* a, const T* b, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (a[i] != b[i] && (a[i] == a[i] || b[i] == b[i])) return false;
  }
  return true;
}

/// Mean and rstd of a norm feed the backward pass: few numbers, compared with stock's one by one.
inline bool statistics_agree(const at::Tensor& stock, const at::Tensor& result) {
  const double bound = stock.scalar_type() == at::kFloat ? 2e-5 : 1e-2;
  for (std::int64_t i = 0; i < stock.numel(); ++i) {
    const double s = element(stock, i);
    const double c = element(result, i);
    if (std::isnan(s) != std::isnan(c) || std::abs(c - s) > bound * (1 + std::abs(s))) return false;
  }
  return true;
}

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
