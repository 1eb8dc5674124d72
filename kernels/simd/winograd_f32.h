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

  /// Sums of `here` rows from `first` on, 32 each, to `to`, in stretches of `depth` channels that are added up; what the next place needs
  /// is fetched meanwhile: `bytes` from `ahead` on.
  static void multiply(const Element* rows, std::int64_t channels, std::int64_t depth, std::int64_t tiles, std::int64_t first,
                       std::int64_t here, const char* b, float* to, const char* ahead, std::int64_t bytes) {
    alignas(64) static constexpr float kNone[kPanelColumns] = {};
    const std::int64_t fetches = ceil_div(channels, kAheadRows) * (kPanelColumns / kColumns);
    const std::int64_t lines = ceil_div(bytes / 64, fetches);
    const Choice choice = kMultiply[here - 1].panels == 1 ? kMultiply[here - 1] : kMultiplyOne[here - 1];
    for (std::int64_t part = 0; part < kPanelColumns; part += kColumns) {
      for (std::int64_t c = 0; c < channels; c += depth) {
        const std::int64_t these = channels - c < depth ? channels - c : depth;
        const bool begins = c == 0;
        choice.run({rows + (c / kBlockK * tiles + first) * kRowStride + c % kBlockK, kRowStride, tiles * kRowStride,
                    b + (c * kPanelColumns + part) * 4, 0, these, begins ? kNone : to + part, begins ? 0 : kPanelColumns, to + part,
                    kPanelColumns, ahead, lines});
        ahead += lines * ceil_div(these, kAheadRows) * 64;
      }
    }
  }
};

}  // namespace
}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
