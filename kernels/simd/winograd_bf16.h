// What simd/winograd.cpp needs for bf16 inside: rows as linear's, and its panels. See winograd_f32.h for what the functions mean.
#pragma once

#include "kernels/simd/groups_bf16.h"
#include "kernels/simd/in_order.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

struct Inside {
  using Element = Isa::A;
  static constexpr bool kBf16 = true;
  static constexpr int kGroup = Isa::kRows;

  /// A line more than a row needs, so that the rows of a group do not meet in one set of L1.
  static std::int64_t stride(std::int64_t channels) { return channels + 32; }
  static std::int64_t elements(std::int64_t channels, std::int64_t tiles) { return tiles * stride(channels); }
  static std::int64_t offset(std::int64_t channels, std::int64_t c, std::int64_t row, std::int64_t /*tiles*/) {
    return row * stride(channels) + c;
  }
  static void put(Element* to, Floats::Vector value) { Isa::store_bf16(to, value); }

  static void multiply(const Element* rows, std::int64_t channels, std::int64_t /*depth*/, std::int64_t /*tiles*/, std::int64_t first,
                       std::int64_t here, const char* b, float* to, const char* ahead, std::int64_t bytes) {
    alignas(64) static constexpr float kNone[kPanelColumns] = {};
    const std::int64_t steps = steps_of(channels);
    ByRows::kOne[here - 1](rows + first * stride(channels), stride(channels), reinterpret_cast<const std::uint16_t*>(b), 0, steps, kNone, 0,
                           to, ahead, ceil_div(bytes / 64, steps));
  }
};

}  // namespace
}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
