// The variants of linear_s8, see dispatch.h for how one is chosen, and the layout of B that they share.
//
// Packed B is as in packed.h, in panels of 32 columns and steps of two tiles of 1 KiB, but a step has 64 rows of K and line r of a tile
// holds rows 4r .. 4r+3 interleaved by column: (4r,n0) (4r+1,n0) (4r+2,n0) (4r+3,n0) (4r,n1) ... Behind the panels: the sums of all
// columns in int32, zeros up to a whole panel.
#pragma once

#include "kernels/dispatch.h"
#include "kernels/linear_s8.h"
#include "kernels/packed.h"

namespace ipexrun::kernels {

inline constexpr std::int64_t kStepKS8 = 64;
inline constexpr std::int64_t kTileBytesS8 = kStepKS8 * kTileColumns;
inline constexpr std::int64_t kStepBytesS8 = 2 * kTileBytesS8;
static_assert(kStepBytesS8 == kStepBytes);

[[maybe_unused]] static constexpr std::int64_t steps_of_s8(std::int64_t k) { return ceil_div(k, kStepKS8); }

/// Where element (k, column n of its panel) lies inside a panel.
[[maybe_unused]] static constexpr std::int64_t packed_offset_s8(std::int64_t k, std::int64_t n) {
  return (k / kStepKS8) * kStepBytesS8 + (n / kTileColumns) * kTileBytesS8 + ((k % kStepKS8) / 4) * (4 * kTileColumns) +
         (n % kTileColumns) * 4 + (k % 4);
}

/// What belongs to the columns of a panel; zeros beyond N.
struct alignas(64) PanelS8 {
  std::int32_t start[kPanelColumns];  ///< what sums start from: the zero of A, times the column
  float scale[kPanelColumns];
  float bias[kPanelColumns];
};

struct LinearS8Variant {
  const char* name;
  IsaSet needs;
  /// Byte products are native, see linear_s8_supported.
  bool native;
  /// A signed A is multiplied as A + 128.
  bool shifts;
  std::size_t (*scratch_bytes)(const LinearS8Args& args, const LinearBlock& block);
  /// Computes the block, which is not empty. `panels`: of the block. `scratch` is 64-byte aligned.
  void (*run)(const LinearS8Args& args, const LinearBlock& block, const PanelS8* panels, void* scratch);
};

using LinearS8Variants = Variants<LinearS8Variant>;
LinearS8Variants linear_s8_variants();

}  // namespace ipexrun::kernels
