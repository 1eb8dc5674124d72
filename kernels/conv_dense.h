// Dense and grouped convolution: what a pack looks like, and how a call is cut. Plain data: see dispatch.h.
//
// Groups are put side by side in slabs of at most 32 channels, in and out, where they are smaller than that; their products with each
// other's weights are zeros. A pack holds, slab after slab, panels of 32 output channels as in packed.h; a panel's K runs over blocks of 32
// input channels, for each over the taps of the kernel. Where a slab has few channels the taps of a row are merged with them: K is then
// [tap of a row][channel], and blocks are of 32 of these.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/conv.h"
#include "kernels/dispatch.h"
#include "kernels/packed.h"

namespace ipexrun::kernels {

/// What a pack depends on.
struct DenseShape {
  std::int64_t group_in = 0;
  std::int64_t group_out = 0;
  std::int64_t slab_groups = 1;  ///< the last slab may have fewer
  std::int64_t slabs = 0;
  std::int64_t slab_in = 0;
  std::int64_t slab_out = 0;
  std::int64_t panels = 0;  ///< of a slab
  bool merged = false;
  std::int64_t blocks = 0;  ///< of K for a tap
  std::int64_t taps = 0;    ///< those of a row count as one where they are merged
  std::int64_t steps = 0;   ///< of a panel

  [[nodiscard]] constexpr std::int64_t panel_bytes() const { return steps * kStepBytes; }
};

DenseShape dense_shape(std::int64_t in_channels, std::int64_t out_channels, std::int64_t groups, const std::int64_t (&kernel)[kConvAxes]);

/// Inputs of one dimension with the same remainder by the stride are neighbours in scratch, so that neighbouring outputs read neighbours:
/// tap k reads from place output + shift_of(k) of phase k % phases.
struct DensePhases {
  std::int64_t phases = 1;  ///< that taps meet
  std::int64_t stride = 1;
  std::int64_t pad = 0;
  std::int64_t dilation = 1;
  std::int64_t kernel = 1;

  [[nodiscard]] constexpr std::int64_t shift_of(std::int64_t tap) const { return tap * dilation / stride; }
  [[nodiscard]] constexpr std::int64_t last_shift(std::int64_t phase) const {
    return shift_of(phase + (kernel - 1 - phase) / phases * phases);
  }
  /// Which input lies at a place.
  [[nodiscard]] constexpr std::int64_t input_of(std::int64_t phase, std::int64_t place) const {
    return place * stride + phase * dilation % stride - pad;
  }
};

/// Segments of rows of outputs, of all images and depths, and panels of all slabs, of one worker.
struct DenseBlock {
  std::int64_t row_begin;
  std::int64_t row_end;
  std::int64_t panel_begin;
  std::int64_t panel_end;
  std::int64_t panel_ahead = 0;  ///< panels up to here likely follow: worth fetching
  bool same_rows = false;        ///< the block before had the same ones and this scratch
};

/// A unit is `rows` rows of outputs of one image and depth, or fewer; or a segment of one, where rows are long. It has a plane in scratch
/// for each block of K, tap of the first dimension and phase of the others: rows of `pitch` places of 64 bytes. What is right of a row's
/// pixels is the padding left of the next row's, so 16 places from anywhere on are what a tile's outputs meet, those between two rows being
/// computed for nothing; where that is no less work, tiles begin with the row. Those below one another follow each other where what windows
/// of a whole row of outputs read is too much for L1: two neighbours down read most of it again, two neighbours across only a little.
struct DensePlan {
  DenseShape shape;
  void (*apart)(const ConvArgs& args, const DensePlan& plan, const DenseBlock& block, void* scratch) = nullptr;  ///< the reference
  DensePhases down;
  DensePhases across;
  std::int64_t segments = 1;  ///< of a row
  std::int64_t segment = 0;   ///< outputs of one but the last
  std::int64_t pitch = 0;
  std::int64_t tail = 0;  ///< places behind the last row that are read as zeros
  bool by_rows = false;
  bool down_first = false;
  std::int64_t rows = 0;  ///< of a unit
  std::int64_t plane_bytes = 0;
  std::int64_t planes = 0;  ///< of a block
  std::int64_t units = 0;   ///< at a time in scratch
  std::int64_t chunk = 0;   ///< panels whose weights stay near while the outputs of all units pass

  // Offsets in scratch.
  std::size_t laid = 0;     ///< what lies there, from one block to the next: a variant's own words, of kLaidBytes
  std::size_t offsets = 0;  ///< of A, a step
  std::size_t stage = 0;
  std::size_t bias = 0;
  std::size_t image = 0;
  std::size_t bytes = 0;

  static constexpr std::int64_t kLaidBytes = 64;

  [[nodiscard]] constexpr std::int64_t unit_bytes() const { return plane_bytes * planes * shape.blocks; }
};

struct DenseVariant {
  const char* name;
  IsaSet needs;
  /// `scratch`, 64-byte aligned, as planned; the reference wants none.
  void (*run)(const ConvArgs& args, const DensePlan& plan, const DenseBlock& block, void* scratch);
};

using DenseVariants = Variants<DenseVariant>;
DenseVariants dense_variants();

}  // namespace ipexrun::kernels
