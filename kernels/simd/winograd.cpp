// winograd on vector units; compiled for avx2 and avx512 (fp32) and avx512_bf16 (bf16 inside).
//
// Loops, outermost first: blocks of tiles (their pixels, transformed, stay in L2, or in L3 where L2 holds too few of them to multiply what is read of
// the weight often enough), panels, the places of a tile, groups of tiles. What a panel's places give is a buffer of a line a place and tile, from which
// results are put together and written, with what follows in the same pass. The next place's weights are fetched into L2 meanwhile. Transformed pixels
// lie as the rows of linear_f32 and linear do (winograd_f32.h, winograd_bf16.h).
#include "kernels/simd/winograd.h"

#include <immintrin.h>

#include "kernels/simd/epilogue.h"
#include "kernels/simd/load_bias.h"
#include "kernels/simd/winograd_tiles.h"
#if defined(IPEXRUN_KERNEL_ISA_AVX512_BF16)
#include "kernels/simd/winograd_bf16.h"
#else
#include "kernels/simd/winograd_f32.h"
#endif

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

constexpr std::int64_t kLanes = Lanes::kCount;
using Numbers = Floats::Vector;

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

struct Tile {
  std::int64_t image;
  std::int64_t y;  // of its first result
  std::int64_t x;
};

template <int kTile>
Tile tile_of(const WinogradArgs& args, std::int64_t t) {
  const std::int64_t across = winograd_tiles(args.out[1], kTile);
  const std::int64_t down = winograd_tiles(args.out[0], kTile);
  return {t / across / down, t / across % down * kTile, t % across * kTile};
}

/// B' d B of a tile, a vector of channels at a time, to row `row` of each place's rows.
template <int kTile, typename Image>
void transform_pixels(const WinogradArgs& args, const Plan& plan, std::int64_t tile_at, std::int64_t row, std::int64_t rows, Inside::Element* to) {
  using Pixel = typename Image::Element;
  constexpr int kSide = kTile + 2;
  constexpr int kPlaces = winograd_places(kTile);
  alignas(64) static constexpr Pixel kZeros[kLanes] = {};
  const Tile tile = tile_of<kTile>(args, tile_at);
  const Pixel* pixels[kPlaces];
  std::int64_t inside[kPlaces];
  for (std::int64_t i = 0; i < kPlaces; ++i) {
    const std::int64_t y = tile.y - args.padding[0] + i / kSide;
    const std::int64_t x = tile.x - args.padding[1] + i % kSide;
    const bool is = y >= 0 && y < args.in[0] && x >= 0 && x < args.in[1];
    pixels[i] = is ? static_cast<const Pixel*>(args.from) + tile.image * args.image_stride + y * args.row_stride + x * args.pixel_stride : kZeros;
    inside[i] = is ? -1 : 0;
  }
  for (std::int64_t c = 0; c < args.channels; c += kLanes) {
    Numbers d[kSide][kSide];
    // Down first, a column of pixels at a time.
#pragma GCC unroll 6
    for (int x = 0; x < kSide; ++x) {
      Numbers p[kSide];
      Numbers column[kSide];
#pragma GCC unroll 6
      for (int y = 0; y < kSide; ++y) p[y] = Image::load(pixels[kSide * y + x] + (c & inside[kSide * y + x]));
      Tiles<kTile>::transform(p, column);
#pragma GCC unroll 6
      for (int y = 0; y < kSide; ++y) d[y][x] = column[y];
    }
    Inside::Element* at = to + Inside::offset(args.channels, c, row, rows);
#pragma GCC unroll 6
    for (int y = 0; y < kSide; ++y) {
      Numbers v[kSide];
      Tiles<kTile>::transform(d[y], v);
#pragma GCC unroll 6
      for (int x = 0; x < kSide; ++x) Inside::put(at + (kSide * y + x) * plan.place, v[x]);
    }
  }
}

/// A' m A of a tile's lines, each `line` floats after the other: the results, 32 columns each, with the bias, to `results`. `checks` becomes NaN where one is
/// not finite, which it is where a pixel is not: all of a tile's places meet in each result's sum, or in that of a result beside the image.
template <int kTile>
Numbers transform_sums(const float* lines, std::int64_t line, const float* bias, float* results, Numbers checks) {
  constexpr int kSide = kTile + 2;
  const Numbers nothing = Floats::all(0.0f);
  for (std::int64_t n = 0; n < kPanelColumns; n += kLanes) {
    Numbers rows[kTile][kSide];
#pragma GCC unroll 6
    for (int x = 0; x < kSide; ++x) {
      Numbers m[kSide];
      Numbers column[kTile];
#pragma GCC unroll 6
      for (int y = 0; y < kSide; ++y) m[y] = InOrderF32::load(lines + (kSide * y + x) * line + n);
      Tiles<kTile>::put_together(m, column);
#pragma GCC unroll 4
      for (int y = 0; y < kTile; ++y) rows[y][x] = column[y];
    }
    const Numbers added = InOrderF32::load(bias + n);
#pragma GCC unroll 4
    for (int y = 0; y < kTile; ++y) {
      Numbers sums[kTile];
      Tiles<kTile>::put_together(rows[y], sums);
#pragma GCC unroll 4
      for (int x = 0; x < kTile; ++x) {
        const Numbers result = Floats::add(sums[x], added);
        checks = Floats::fma(result, nothing, checks);
        InOrderF32::store(results + (kTile * y + x) * kPanelColumns + n, result);
      }
    }
  }
  return checks;
}

/// A pixel's 32 columns, with a sum, relu behind it, one of them or neither.
template <typename To, bool kSum, bool kRelu>
void put_pixel(const float* from, const void* other, void* to) {
  using Element = typename To::Element;
  for (std::int64_t n = 0; n < kPanelColumns; n += kLanes) {
    Numbers x = InOrderF32::load(from + n);
    if constexpr (kSum) x = Floats::add(x, To::load(static_cast<const Element*>(other) + n));
    if constexpr (kRelu) x = Floats::at_least(Floats::all(0.0f), x);
    To::store(static_cast<Element*>(to) + n, x);
  }
}

using Put = void (*)(const float*, const void*, void*);

template <typename To>
Put put_as(bool sum, bool relu) {
  return sum ? (relu ? put_pixel<To, true, true> : put_pixel<To, true, false>) : (relu ? put_pixel<To, false, true> : put_pixel<To, false, false>);
}

/// Null where finish_rows() is to be asked.
Put put_of(const WinogradArgs& args) {
  const Epilogue& e = args.epilogue;
  const bool relu = e.unary == Unary::kRelu;
  const bool sum = e.binary == Binary::kAdd;
  if (e.unary != Unary::kNone && !relu) return nullptr;
  if (e.binary != Binary::kNone && !(sum && e.other_dtype == args.to_dtype && (e.binary_first || !relu))) return nullptr;
  return args.to_dtype == DType::kF32 ? put_as<InOrderF32>(sum, relu) : put_as<InOrderBf16>(sum, relu);
}

template <int kTile>
void write_tile(const WinogradArgs& args, std::int64_t tile_at, std::int64_t column, Put put, float* results) {
  const Tile tile = tile_of<kTile>(args, tile_at);
  const std::int64_t valid = args.n - column < kPanelColumns ? args.n - column : kPanelColumns;
  for (int i = 0; i < kTile * kTile; ++i, results += kPanelColumns) {
    const std::int64_t y = tile.y + i / kTile;
    const std::int64_t x = tile.x + i % kTile;
    if (y >= args.out[0] || x >= args.out[1]) continue;
    const std::int64_t pixel = (tile.image * args.out[0] + y) * args.out[1] + x;
    char* to = static_cast<char*>(args.to) + (pixel * args.ld_to + column) * bytes_of(args.to_dtype);
    if (put != nullptr && valid == kPanelColumns) {
      const Epilogue& e = args.epilogue;
      const auto* other = static_cast<const char*>(e.other);
      put(results, other == nullptr ? nullptr : other + (pixel * e.ld_other + column) * bytes_of(e.other_dtype), to);
      continue;
    }
    if (args.epilogue.any()) finish_rows(args.epilogue, pixel, 1, column, valid, results, kPanelColumns);
    if (args.to_dtype == DType::kF32) {
      __builtin_memcpy(to, results, static_cast<std::size_t>(valid) * 4);
    } else {
      alignas(64) std::uint16_t rounded[kPanelColumns];
      put_pixel<InOrderBf16, false, false>(results, nullptr, rounded);
      __builtin_memcpy(to, rounded, static_cast<std::size_t>(valid) * 2);
    }
  }
}

bool is_nan_in(Numbers v) {
  float parts[kLanes];
  InOrderF32::store(parts, v);
  float sum = 0;
  for (const float part : parts) sum += part;
  return sum != sum;
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
          Inside::multiply(pixels + place * plan.place, args.channels, Tiles<kTile>::kDepth, tiles, first, here, b, sums + place * line + first * kPanelColumns,
                           b + place_bytes + group * share, share);
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
