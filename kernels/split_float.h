// A float32 in two halves of 16 bits, exactly: the nearest bfloat16 (ties away from zero) and what is left, as a signed number of units in
// the last place of float32. join(split(x)) is x to the bit, NaN's payload excepted.
//
// Thread rule: no state.
#pragma once

#include <bit>
#include <cstdint>

namespace ipexrun::kernels {

struct SplitFloat {
  std::uint16_t high;  ///< the bits of a bfloat16
  std::int16_t low;
};

[[nodiscard]] constexpr SplitFloat split_float(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  // A NaN must not round up into another number; with its quiet bit set it stays one whatever `low` takes away.
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const std::uint32_t high = nan ? (bits >> 16) | 0x40u : (bits + 0x8000u) >> 16;
  return {static_cast<std::uint16_t>(high), static_cast<std::int16_t>(static_cast<std::uint16_t>(bits))};
}

[[nodiscard]] constexpr float join_float(SplitFloat halves) noexcept {
  const std::uint32_t high = static_cast<std::uint32_t>(halves.high) << 16;
  return std::bit_cast<float>(high + static_cast<std::uint32_t>(static_cast<std::int32_t>(halves.low)));
}

}  // namespace ipexrun::kernels
