// What simd/winograd.cpp needs for fp32: rows as linear_f32's, blocks of channels, rows a constant distance apart.
#pragma once

#include "kernels/simd/groups_f32.h"
#include "kernels/simd/in_order.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

struct Inside {
  using Element = float;
  static constexpr bool kBf16 = false;
  static constexpr int kGroup = kRows;

  /// Elements that `tiles` rows take.
  static std::int64_t elements(std::int64_t channels, std::int64_t tiles) { return ceil_div(channels, kBlockK) * tiles * kRowStride; }
  /// Where channel c of row `row` of `tiles` lies.
  static std::int64_t offset(std::int64_t /*channels*/, std::int64_t c, std::int64_t row, std::int64_t tiles) {
    return (c / kBlockK * tiles + row) * kRowStride + c % kBlockK;
  }
  static void put(Element* to, Floats::Vector value) { InOrderF32::store(to, value); }

  /// Sums of `here` rows from `first` on, 32 each, to `to`; what the next place needs is fetched meanwhile: `bytes` from `ahead` on.
  static void multiply(const Element* rows, std::int64_t channels, std::int64_t tiles, std::int64_t first, std::int64_t here, const char* b,
                       float* to, const char* ahead, std::int64_t bytes) {
    alignas(64) static constexpr float kNone[kPanelColumns] = {};
    const std::int64_t stretches = ceil_div(channels, kAheadRows) * (kPanelColumns / kColumns);
    const std::int64_t lines = ceil_div(bytes / 64, stretches);
    const Choice choice = kMultiply[here - 1].panels == 1 ? kMultiply[here - 1] : kMultiplyOne[here - 1];
    for (std::int64_t part = 0; part < kPanelColumns; part += kColumns, ahead += lines * ceil_div(channels, kAheadRows) * 64)
      choice.run({rows + first * kRowStride, kRowStride, tiles * kRowStride, b + part * 4, 0, channels, kNone, 0, to + part, kPanelColumns,
                  ahead, lines});
  }
};

}  // namespace
}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
