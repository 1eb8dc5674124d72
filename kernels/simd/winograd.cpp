// winograd on vector units; compiled for avx2 and avx512 (fp32) and avx512_bf16 (bf16 inside).
//
// Loops, outermost first: blocks of tiles (their pixels, transformed, stay in L2, or in L3 where L2 holds too few of them to multiply what
// is read of the weight often enough), panels, the places of a tile, groups of tiles. What a panel's places give is a buffer of a line a
// place and tile, from which results are put together and written, with what follows in the same pass. The next place's weights are fetched
// into L2 meanwhile. Transformed pixels lie as the rows of linear_f32 and linear do (winograd_f32.h, winograd_bf16.h).
#include "kernels/simd/winograd.h"

#include <immintrin.h>

#include "kernels/simd/winograd_steps.h"
#if defined(IPEXRUN_KERNEL_ISA_AVX512_BF16)
#include "kernels/simd/winograd_bf16.h"
#else
#include "kernels/simd/winograd_f32.h"
#endif

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

/// Of a block: what is read of the weight for each block, from L3 or memory, is multiplied as often. From 24 to 96 took the same time.
constexpr std::int64_t kLeastTiles = 36;

struct Plan {
  std::int64_t tiles;  // of a block
  std::int64_t place;  // elements from one place's rows to the next
  std::int64_t a_bytes;
};

Plan plan_of(const WinogradArgs& args, const LinearBlock& block) {
  Plan plan{};
  const std::int64_t places = winograd_places(args.tile);
  const std::int64_t tiles = block.row_end - block.row_begin;
  // Of a tile: pixels and what they give.
  const std::int64_t bytes = places * (args.channels * static_cast<std::int64_t>(sizeof(Inside::Element)) + kPanelColumns * 4);
  std::int64_t most = block.l2_bytes / 2 / bytes / Inside::kGroup * Inside::kGroup;
  constexpr std::int64_t kLeast = ceil_div(kLeastTiles, Inside::kGroup) * Inside::kGroup;
  if (most < kLeast) most = kLeast;
  plan.tiles = tiles < most ? tiles : ceil_div(tiles, ceil_div(tiles, most));
  plan.place = Inside::elements(args.channels, plan.tiles);
  plan.a_bytes = ceil_div(places * plan.place * static_cast<std::int64_t>(sizeof(Inside::Element)), 64) * 64;
  return plan;
}

/// B' d B of a tile, a vector of channels at a time, to row `row` of each place's rows.
template <int kTile, typename Image>
void transform_pixels(const WinogradArgs& args, const Plan& plan, std::int64_t tile_at, std::int64_t row, std::int64_t rows,
                      Inside::Element* to) {
  const PixelsOfTile<kTile, Image> pixels(args, tile_at);
  for (std::int64_t c = 0; c < args.channels; c += kLanes) {
    Inside::Element* at = to + Inside::offset(args.channels, c, row, rows);
    pixels.transform(
        c, [&](std::int64_t place, Numbers value) __attribute__((always_inline)) { Inside::put(at + place * plan.place, value); });
  }
}

template <int kTile>
bool run(const WinogradArgs& args, const LinearBlock& block, void* scratch) {
  constexpr int kPlaces = winograd_places(kTile);
  const Plan plan = plan_of(args, block);
  auto* pixels = static_cast<Inside::Element*>(scratch);
  auto* sums = reinterpret_cast<float*>(static_cast<char*>(scratch) + plan.a_bytes);
  const std::int64_t place_bytes = winograd_place_bytes(args.channels, Inside::kBf16);
  const Put put = put_of(args);
  const auto transform = args.from_dtype == DType::kF32 ? transform_pixels<kTile, InOrderF32> : transform_pixels<kTile, InOrderBf16>;
  Numbers checks = Floats::all(0.0f);
  for (std::int64_t tile = block.row_begin; tile < block.row_end; tile += plan.tiles) {
    const std::int64_t tiles = block.row_end - tile < plan.tiles ? block.row_end - tile : plan.tiles;
    const bool transformed = block.same_rows && tiles == block.row_end - block.row_begin;
    for (std::int64_t t = 0; t < tiles && !transformed; ++t) transform(args, plan, tile + t, t, tiles, pixels);
    const std::int64_t groups = ceil_div(tiles, Inside::kGroup);
    const std::int64_t line = tiles * kPanelColumns;  // from one place's sums to the next
    for (std::int64_t panel = block.panel_begin; panel < block.panel_end; ++panel) {
      const char* b = static_cast<const char*>(args.packed) + panel * kPlaces * place_bytes;
      for (int place = 0; place < kPlaces; ++place, b += place_bytes) {
        const bool fetch = place + 1 < kPlaces || panel + 1 < block.panel_end;
        const std::int64_t share = fetch ? ceil_div(ceil_div(place_bytes, groups), 64) * 64 : 0;  // of the next place's, for each group
        for (std::int64_t group = 0; group < groups; ++group) {
          const std::int64_t first = tiles * group / groups;
          const std::int64_t here = tiles * (group + 1) / groups - first;
          Inside::multiply(pixels + place * plan.place, args.channels, Tiles<kTile>::kDepth, tiles, first, here, b,
                           sums + place * line + first * kPanelColumns, b + place_bytes + group * share, share);
        }
      }
      alignas(64) float bias[kPanelColumns];
      const std::int64_t column = panel * kPanelColumns;
      load_bias(args, column, kPanelColumns, bias);
      for (std::int64_t t = 0; t < tiles; ++t) {
        alignas(64) float results[kTile * kTile * kPanelColumns];
        checks = transform_sums<kTile>(sums + t * kPanelColumns, line, bias, results, checks);
        write_tile<kTile>(args, tile + t, column, put, results);
      }
    }
  }
  return !is_nan_in(checks);
}

}  // namespace

std::size_t winograd_scratch_bytes(const WinogradArgs& args, const LinearBlock& block) {
  const Plan plan = plan_of(args, block);
  return static_cast<std::size_t>(plan.a_bytes + winograd_places(args.tile) * plan.tiles * kPanelColumns * 4);
}

bool winograd(const WinogradArgs& args, const LinearBlock& block, void* scratch) {
#if !defined(IPEXRUN_KERNEL_ISA_AVX512_BF16)
  if (args.tile == 4) return run<4>(args, block, scratch);
#endif
  return run<2>(args, block, scratch);
}

}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
