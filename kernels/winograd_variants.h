// The variants of winograd, see dispatch.h for how one is chosen, and the layout that they share.
//
// Packed: panels of 32 channels out; a panel holds the 16 places of a tile one after the other, each with rows of channels in, 32 numbers a row, or,
// for bf16, as a panel of packed.h. Channels out are padded to whole panels with zeros.
#pragma once

#include "kernels/dispatch.h"
#include "kernels/packed.h"
#include "kernels/winograd.h"

namespace ipexrun::kernels {

[[maybe_unused]] static constexpr std::int64_t winograd_place_bytes(std::int64_t channels, bool bf16) {
  return bf16 ? steps_of(channels) * kStepBytes : channels * kPanelColumns * 4;
}

/// Tiles of one image, down and across.
[[maybe_unused]] static constexpr std::int64_t winograd_tiles(std::int64_t pixels) { return ceil_div(pixels, 2); }

struct WinogradVariant {
  const char* name;
  IsaSet needs;
  std::int64_t channels_at_once;  ///< channels in are a multiple
  std::size_t (*scratch_bytes)(const WinogradArgs& args, const LinearBlock& block);
  /// Computes the block, which is not empty: rows are tiles, image after image, row after row. `scratch` is 64-byte aligned. False where a number
  /// on the way is not finite.
  bool (*run)(const WinogradArgs& args, const LinearBlock& block, void* scratch);
};

using WinogradVariants = Variants<WinogradVariant>;
WinogradVariants winograd_variants(bool bf16);

}  // namespace ipexrun::kernels
