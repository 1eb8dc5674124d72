// What every variant of winograd does around its products: tiles of pixels transformed, sums put together and written with what follows.
// Internal linkage, see dispatch.h.
#pragma once

#include "kernels/simd/epilogue.h"
#include "kernels/simd/load_bias.h"
#include "kernels/simd/winograd_tiles.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

constexpr std::int64_t kLanes = Lanes::kCount;
using Numbers = Floats::Vector;

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

/// The pixels that a tile meets, zeros outside of the image; Image: InOrderF32 or InOrderBf16.
template <int kTile, typename Image>
class PixelsOfTile {
 public:
  PixelsOfTile(const WinogradArgs& args, std::int64_t tile_at) {
    alignas(64) static constexpr Pixel kZeros[kLanes] = {};
    const Tile tile = tile_of<kTile>(args, tile_at);
    for (std::int64_t i = 0; i < kSide * kSide; ++i) {
      const std::int64_t y = tile.y - args.padding[0] + i / kSide;
      const std::int64_t x = tile.x - args.padding[1] + i % kSide;
      const bool is = y >= 0 && y < args.in[0] && x >= 0 && x < args.in[1];
      pixels_[i] =
          is ? static_cast<const Pixel*>(args.from) + tile.image * args.image_stride + y * args.row_stride + x * args.pixel_stride : kZeros;
      inside_[i] = is ? -1 : 0;
    }
  }

  /// B' d B of a vector of channels from `c` on: put(place, numbers) for each place.
  template <typename Put>
  [[gnu::always_inline]] void transform(std::int64_t c, const Put& put) const {
    Numbers d[kSide][kSide];
    // Down first, a column of pixels at a time.
#pragma GCC unroll 6
    for (int x = 0; x < kSide; ++x) {
      Numbers p[kSide];
      Numbers column[kSide];
#pragma GCC unroll 6
      for (int y = 0; y < kSide; ++y) p[y] = Image::load(pixels_[kSide * y + x] + (c & inside_[kSide * y + x]));
      Tiles<kTile>::transform(p, column);
#pragma GCC unroll 6
      for (int y = 0; y < kSide; ++y) d[y][x] = column[y];
    }
#pragma GCC unroll 6
    for (int y = 0; y < kSide; ++y) {
      Numbers v[kSide];
      Tiles<kTile>::transform(d[y], v);
#pragma GCC unroll 6
      for (int x = 0; x < kSide; ++x) put(kSide * y + x, v[x]);
    }
  }

 private:
  using Pixel = typename Image::Element;
  static constexpr int kSide = kTile + 2;

  const Pixel* pixels_[kSide * kSide];
  std::int64_t inside_[kSide * kSide];
};

/// A' m A of a tile's lines, each `line` floats after the other: the results, 32 columns each, with the bias, to `results`. `checks`
/// becomes NaN where one is not finite, which it is where a pixel is not: all of a tile's places meet in each result's sum, or in that of a
/// result beside the image.
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
  return sum ? (relu ? put_pixel<To, true, true> : put_pixel<To, true, false>)
             : (relu ? put_pixel<To, false, true> : put_pixel<To, false, false>);
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

}  // namespace
}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
