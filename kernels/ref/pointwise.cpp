// The truth of pointwise: each instruction in doubles, rounded to fp32.
#include "kernels/ref/pointwise.h"

#include <cmath>
#include <limits>

#include "kernels/bf16.h"
#include "kernels/ref/activation.h"

namespace ipexrun::kernels::ref {

double point_of(Point what, double a, double b, double c) {
  switch (what) {
    case Point::kCopy:
      return a;
    case Point::kNegative:
      return -a;
    case Point::kAbsolute:
      return std::fabs(a);
    case Point::kRoot:
      return std::sqrt(a);
    case Point::kReciprocalRoot:
      return 1 / std::sqrt(a);
    case Point::kReciprocal:
      return 1 / a;
    case Point::kExp:
      return std::exp(a);
    case Point::kExpLess1:
      return std::expm1(a);
    case Point::kLog:
      return std::log(a);
    case Point::kLog1Plus:
      return std::log1p(a);
    case Point::kSoftplus:
      return (a > 0 ? a : a <= 0 ? 0 : a) + std::log1p(std::exp(-std::fabs(a)));
    case Point::kRelu:
      return a < 0 ? 0 : a;
    case Point::kTanh:
      return activation_of(Activation::kTanh, a);
    case Point::kSigmoid:
      return activation_of(Activation::kSigmoid, a);
    case Point::kSilu:
      return activation_of(Activation::kSilu, a);
    case Point::kGelu:
      return activation_of(Activation::kGelu, a);
    case Point::kGeluTanh:
      return activation_of(Activation::kGeluTanh, a);
    case Point::kNot:
      return a == 0;
    case Point::kRoundBf16:
      return static_cast<double>(bf16_to_f32(bf16_from_f32(static_cast<float>(a))));
    case Point::kAdd:
      return a + b;
    case Point::kSubtract:
      return a - b;
    case Point::kMultiply:
      return a * b;
    case Point::kDivide:
      return a / b;
    case Point::kMaximum:
      return a < b || std::isnan(b) ? b : a;
    case Point::kMinimum:
      return a > b || std::isnan(b) ? b : a;
    case Point::kGreater:
      return a > b;
    case Point::kGreaterEqual:
      return a >= b;
    case Point::kEqual:
      return a == b;
    case Point::kUnequal:
      return a != b;
    case Point::kWhere:
      return a != 0 ? b : c;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

void point_load(const void* from, PointType type, std::int64_t stride, std::int64_t n, std::int64_t next_row, std::int64_t rows,
                float* to) {
  for (std::int64_t i = 0; i < rows * n; ++i) {
    const std::int64_t at = i / n * next_row + i % n * stride;
    to[i] = type == PointType::kF32    ? static_cast<const float*>(from)[at]
            : type == PointType::kBf16 ? bf16_to_f32(static_cast<const std::uint16_t*>(from)[at])
                                       : static_cast<float>(static_cast<const std::uint8_t*>(from)[at] != 0);
  }
}

void point_run(const PointInstruction* instructions, int count, float* const* slots, std::int64_t n) {
  for (int k = 0; k < count; ++k) {
    const PointInstruction& one = instructions[k];
    for (std::int64_t i = 0; i < n; ++i) {
      slots[one.to][i] = static_cast<float>(point_of(one.what, static_cast<double>(slots[one.a][i]), static_cast<double>(slots[one.b][i]),
                                                     static_cast<double>(slots[one.c][i])));
    }
  }
}

void point_store(const float* from, PointType type, std::int64_t stride, std::int64_t n, void* to) {
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t at = i * stride;
    if (type == PointType::kF32) {
      static_cast<float*>(to)[at] = from[i];
    } else if (type == PointType::kBf16) {
      static_cast<std::uint16_t*>(to)[at] = bf16_from_f32(from[i]);
    } else {
      static_cast<std::uint8_t*>(to)[at] = from[i] != 0;
    }
  }
}

}  // namespace ipexrun::kernels::ref
