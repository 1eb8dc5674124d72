// A guarded buffer of fp32 or bf16 elements, for the kernel tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>

#include "kernels/bf16.h"
#include "tests/unit/kernels/support.h"

namespace ipexrun::kernels::test {

/// A guarded buffer of elements with `offset` more in front of it, for alignment.
class Buffer {
 public:
  Buffer() = default;
  Buffer(DType dtype, std::int64_t count, std::int64_t offset = 0)
      : dtype_(dtype), count_(count), offset_(offset), memory_(static_cast<std::size_t>((offset + count) * bytes_of(dtype))) {}

  [[nodiscard]] char* data() const { return memory_.data() + offset_ * bytes_of(dtype_); }
  [[nodiscard]] std::int64_t count() const { return count_; }
  [[nodiscard]] std::string bytes() const { return {memory_.data(), memory_.bytes()}; }
  [[nodiscard]] bool front_is_clean() const {
    return std::all_of(memory_.data(), data(), [](char byte) { return byte == 0x7f; });
  }
  [[nodiscard]] bool untouched(std::int64_t i) const {
    const char* at = data() + i * bytes_of(dtype_);
    return std::all_of(at, at + bytes_of(dtype_), [](char byte) { return byte == 0x7f; });
  }
  void set(std::int64_t i, float value) {
    const std::uint16_t half = bf16_from_f32(value);
    dtype_ == DType::kF32 ? std::memcpy(data() + i * 4, &value, 4) : std::memcpy(data() + i * 2, &half, 2);
  }
  [[nodiscard]] double get(std::int64_t i) const {
    float value = 0;
    std::uint16_t half = 0;
    dtype_ == DType::kF32 ? std::memcpy(&value, data() + i * 4, 4) : std::memcpy(&half, data() + i * 2, 2);
    return static_cast<double>(dtype_ == DType::kF32 ? value : bf16_to_f32(half));
  }
  void fill(std::mt19937& random, float mean = 0, float deviation = 1) {
    std::normal_distribution<float> normal(mean, deviation);
    for (std::int64_t i = 0; i < count_; ++i) set(i, normal(random));
  }

 private:
  DType dtype_ = DType::kF32;
  std::int64_t count_ = 0;
  std::int64_t offset_ = 0;
  Guarded memory_;
};

/// `bound` widened by the last rounding.
inline bool near(double seen, double truth, double bound, DType dtype) {
  if (std::isnan(truth)) return std::isnan(seen);
  if (dtype == DType::kBf16) bound += (std::fabs(truth) + bound) / 256;
  return std::fabs(seen - truth) <= bound;
}

}  // namespace ipexrun::kernels::test
