// The truth of normalize: the formulas in doubles, one rounding to fp32 and, for bf16, one more.
#include "kernels/ref/normalize.h"

#include <cmath>
#include <limits>

#include "kernels/ref/element.h"

namespace ipexrun::kernels::ref {
namespace {

/// What a norm is of: an element, or its sum with the residual as it is stored.
double value_of(const NormArgs& args, std::int64_t i) {
  const double x = get(args.from, args.dtype, i);
  if (args.residual == nullptr) return x;
  float stored = 0;
  put(&stored, args.dtype, 0, x + get(args.residual, args.dtype, i));
  return get(&stored, args.dtype, 0);
}

/// `parameter` says which weight and bias element i of a row has.
template <typename Parameter>
void norm(const NormArgs& args, std::int64_t row_begin, std::int64_t row_end, bool centered, Parameter parameter,
          bool beyond_is_nan = false) {
  const auto columns = static_cast<double>(args.columns);
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    const std::int64_t first = row * args.columns;
    double mean = 0;
    for (std::int64_t i = 0; centered && i < args.columns; ++i) mean += value_of(args, first + i) / columns;
    double square = 0;
    for (std::int64_t i = 0; i < args.columns; ++i) {
      const double difference = value_of(args, first + i) - mean;
      square += difference * difference / columns;
    }
    const bool beyond = beyond_is_nan && square > std::numeric_limits<float>::max();
    const double rstd = beyond ? std::numeric_limits<double>::quiet_NaN() : 1 / std::sqrt(square + args.eps);
    for (std::int64_t i = 0; i < args.columns; ++i) {
      const double weight = args.weight != nullptr ? get(args.weight, args.parameter_dtype, parameter(row, i)) : 1.0;
      const double bias = args.bias != nullptr ? get(args.bias, args.parameter_dtype, parameter(row, i)) : 0.0;
      const double value = value_of(args, first + i);
      if (args.residual != nullptr && args.sum != nullptr) put(args.sum, args.dtype, first + i, value);
      const double result = (value - mean) * rstd * weight + bias;
      if (args.to != nullptr) put(args.to, args.dtype, first + i, result);
      if (args.narrow != nullptr) put(args.narrow, DType::kBf16, first + i, result);
    }
    if (centered && args.mean != nullptr) put(args.mean, args.stats_dtype, row, mean);
    if (args.rstd != nullptr) put(args.rstd, args.stats_dtype, row, rstd);
  }
}

std::int64_t column(std::int64_t, std::int64_t i) { return i; }

}  // namespace

void softmax(const SoftmaxArgs& args, std::int64_t row_begin, std::int64_t row_end, float*) {
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    const std::int64_t first = row * args.columns;
    double largest = -std::numeric_limits<double>::infinity();
    for (std::int64_t i = 0; i < args.columns; ++i) largest = std::fmax(largest, get(args.from, args.dtype, first + i));
    double sum = 0;
    for (std::int64_t i = 0; i < args.columns; ++i) sum += std::exp(get(args.from, args.dtype, first + i) - largest);
    for (std::int64_t i = 0; i < args.columns; ++i) {
      put(args.to, args.dtype, first + i, std::exp(get(args.from, args.dtype, first + i) - largest) / sum);
    }
  }
}

void layer_norm(const NormArgs& args, std::int64_t row_begin, std::int64_t row_end, float*) {
  norm(args, row_begin, row_end, true, column, true);
}
void rms_norm(const NormArgs& args, std::int64_t row_begin, std::int64_t row_end, float*) { norm(args, row_begin, row_end, false, column); }

void group_norm(const GroupNormArgs& args, std::int64_t row_begin, std::int64_t row_end, float*) {
  norm(args, row_begin, row_end, true,
       [&](std::int64_t row, std::int64_t i) { return row % args.groups * (args.columns / args.pixels) + i / args.pixels; });
}

void scale_channels(const ChannelScaleArgs& args, std::int64_t row_begin, std::int64_t row_end, float*) {
  for (std::int64_t i = row_begin * args.columns; i < row_end * args.columns; ++i) {
    const std::int64_t channel = args.adjacent ? i % args.columns : i / args.columns % args.channels;
    put(args.to, args.dtype, i,
        get(args.from, args.dtype, i) * static_cast<double>(args.scale[channel]) + static_cast<double>(args.shift[channel]));
  }
}

}  // namespace ipexrun::kernels::ref
