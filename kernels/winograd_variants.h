// The variants of winograd, see dispatch.h for how one is chosen, and the layout that they share.
//
// Packed: panels of 32 channels out; a panel holds the 16 (36) places of a tile one after the other, each with rows of channels in, 32
// numbers a row, or, for bf16, as a panel of packed.h. Channels out are padded to whole panels with zeros.
#pragma once

#include "kernels/dispatch.h"
#include "kernels/packed.h"
#include "kernels/winograd.h"

namespace ipexrun::kernels {

[[maybe_unused]] static constexpr std::int64_t winograd_place_bytes(std::int64_t channels, bool bf16) {
  return bf16 ? steps_of(channels) * kStepBytes : channels * kPanelColumns * 4;
}

/// Tiles of one image, down and across.
[[maybe_unused]] static constexpr std::int64_t winograd_tiles(std::int64_t pixels, int tile) { return ceil_div(pixels, tile); }

/// Products of a tile and two channels.
[[maybe_unused]] static constexpr int winograd_places(int tile) { return (tile + 2) * (tile + 2); }

/// A, B and G of one dimension; the sides of a tile's pixels are two more than those of its results.
template <int kTile>
struct WinogradMatrices;

template <>
struct WinogradMatrices<2> {
  static constexpr double kInput[4][4] = {{1, 0, -1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, 1, 0, -1}};
  static constexpr double kWeight[4][3] = {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}};
  static constexpr double kOutput[2][4] = {{1, 1, 1, 0}, {0, 1, -1, -1}};
};

/// Points 0, a, -a, b, -b and infinity.
template <>
struct WinogradMatrices<4> {
  static constexpr double kA = 0.75;
  static constexpr double kB = 1.5;
  static constexpr double kAa = kA * kA;
  static constexpr double kBb = kB * kB;
  static constexpr double kInput[6][6] = {{kAa * kBb, 0, -kAa - kBb, 0, 1, 0}, {0, -kA* kBb, -kBb, kA, 1, 0},
                                          {0, kA* kBb, -kBb, -kA, 1, 0},       {0, -kB* kAa, -kAa, kB, 1, 0},
                                          {0, kB* kAa, -kAa, -kB, 1, 0},       {0, kAa* kBb, 0, -kAa - kBb, 0, 1}};
  static constexpr double kOfA = 2 * kAa * (kAa - kBb);
  static constexpr double kOfB = 2 * kBb * (kBb - kAa);
  static constexpr double kWeight[6][3] = {
      {1 / (kAa * kBb), 0, 0},           {1 / kOfA, kA / kOfA, kAa / kOfA},  {1 / kOfA, -kA / kOfA, kAa / kOfA},
      {1 / kOfB, kB / kOfB, kBb / kOfB}, {1 / kOfB, -kB / kOfB, kBb / kOfB}, {0, 0, 1}};
  static constexpr double kOutput[4][6] = {
      {1, 1, 1, 1, 1, 0}, {0, kA, -kA, kB, -kB, 0}, {0, kAa, kAa, kBb, kBb, 0}, {0, kA* kAa, -kA* kAa, kB* kBb, -kB* kBb, 1}};
};

struct WinogradVariant {
  const char* name;
  IsaSet needs;
  std::int64_t channels_at_once;  ///< channels in are a multiple
  std::size_t (*scratch_bytes)(const WinogradArgs& args, const LinearBlock& block);
  /// Computes the block, which is not empty: rows are tiles, image after image, row after row. `scratch` is 64-byte aligned. False where a
  /// number on the way is not finite.
  bool (*run)(const WinogradArgs& args, const LinearBlock& block, void* scratch);
};

using WinogradVariants = Variants<WinogradVariant>;
WinogradVariants winograd_variants(bool bf16);
/// Of fp32 in parts, by the pack of fp32.
WinogradVariants winograd_parts_variants();

}  // namespace ipexrun::kernels
