// The one layout of a packed B, read by every variant; kernels/README.md draws it.
//
// Columns are grouped in panels of 32. A panel holds, for each 32 rows of K, two AMX tiles (columns 0-15, then 16-31); a tile is
// 16 lines of 64 bytes, line r holding rows 2r and 2r+1 of K interleaved by column: (k0,n0) (k1,n0) (k0,n1) (k1,n1) ...
// K is padded with zeros to 32 and N to 32, so no variant needs a tail in either direction of B.
//
// Everything here has internal linkage (static): files compiled for different instruction sets include it, and the linker must not
// keep one copy of an inline function for all of them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ipexrun::kernels {

inline constexpr std::int64_t kPanelColumns = 32;
inline constexpr std::int64_t kStepK = 32;                             ///< rows of K in one step of a panel
inline constexpr std::int64_t kTileColumns = 16;                       ///< columns of one tile
inline constexpr std::int64_t kTileElements = kStepK * kTileColumns;   ///< 512 bf16 = 1 KiB
inline constexpr std::int64_t kStepElements = kStepK * kPanelColumns;  ///< 1024 bf16 = 2 KiB
inline constexpr std::int64_t kStepBytes = kStepElements * 2;

[[maybe_unused]] static constexpr std::int64_t ceil_div(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }
[[maybe_unused]] static constexpr std::int64_t panels_of(std::int64_t n) { return ceil_div(n, kPanelColumns); }
[[maybe_unused]] static constexpr std::int64_t steps_of(std::int64_t k) { return ceil_div(k, kStepK); }

/// Where element (k, column n of its panel) lies inside a panel, in elements.
[[maybe_unused]] static constexpr std::int64_t packed_offset(std::int64_t k, std::int64_t n) {
  return (k / kStepK) * kStepElements + (n / kTileColumns) * kTileElements + ((k % kStepK) / 2) * (2 * kTileColumns) +
         (n % kTileColumns) * 2 + (k % 2);
}

}  // namespace ipexrun::kernels
