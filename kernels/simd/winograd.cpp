// winograd on vector units; compiled for avx2 and avx512.
//
// Loops, outermost first: blocks of tiles (their pixels, transformed, stay in L2), panels, the 16 places of a tile, groups of tiles. What a panel's
// places give is a buffer of 16 lines a tile, from which results are put together and written, with what follows in the same pass. The next place's
// weights are fetched into L2 meanwhile. Transformed pixels lie as linear_f32's rows do: blocks of channels, rows a constant distance apart.
#include "kernels/simd/winograd.h"

#include <immintrin.h>

#include "kernels/simd/epilogue.h"
#include "kernels/simd/groups_f32.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

constexpr int kPlaces = 16;

struct Plan {
  std::int64_t tiles;  // of a block
  std::int64_t place;  // floats from one place's rows to the next
  std::int64_t a_bytes;
};

Plan plan_of(const WinogradArgs& args, const LinearBlock& block) {
  Plan plan{};
  const std::int64_t tiles = block.row_end - block.row_begin;
  const std::int64_t bytes = kPlaces * (args.channels + kPanelColumns) * 4;  // of a tile: pixels and what they give
  std::int64_t most = block.l2_bytes / 2 / bytes / kRows * kRows;
  if (most < kRows) most = kRows;
  plan.tiles = tiles < most ? tiles : ceil_div(tiles, ceil_div(tiles, most));
  plan.place = ceil_div(args.channels, kBlockK) * plan.tiles * kRowStride;
  plan.a_bytes = kPlaces * plan.place * 4;
  return plan;
}

struct Tile {
  std::int64_t image;
  std::int64_t y;  // of its first result
  std::int64_t x;
};

Tile tile_of(const WinogradArgs& args, std::int64_t t) {
  const std::int64_t across = winograd_tiles(args.out[1]);
  const std::int64_t down = winograd_tiles(args.out[0]);
  return {t / across / down, t / across % down * 2, t % across * 2};
}

inline Vector subtract(Vector a, Vector b) {
#if defined(IPEXRUN_KERNEL_ISA_AVX512)
  return _mm512_sub_ps(a, b);
#else
  return _mm256_sub_ps(a, b);
#endif
}

/// B' d B of a tile, kWidth channels at a time, to row `row` of each place's rows. `checks` becomes NaN where a number is not finite.
Vector transform_pixels(const WinogradArgs& args, const Plan& plan, const Tile& tile, std::int64_t row, std::int64_t rows, float* to, Vector checks) {
  alignas(64) static constexpr float kZeros[kWidth] = {};
  const float* pixels[kPlaces];
  std::int64_t inside[kPlaces];
  for (std::int64_t i = 0; i < kPlaces; ++i) {
    const std::int64_t y = tile.y - args.padding[0] + i / 4;
    const std::int64_t x = tile.x - args.padding[1] + i % 4;
    const bool is = y >= 0 && y < args.in[0] && x >= 0 && x < args.in[1];
    pixels[i] = is ? args.from + tile.image * args.image_stride + y * args.row_stride + x * args.pixel_stride : kZeros;
    inside[i] = is ? -1 : 0;
  }
  const Vector nothing = zero();
  for (std::int64_t c = 0; c < args.channels; c += kWidth) {
    Vector d[4][4];
    // Down first, a column of pixels at a time.
#pragma GCC unroll 4
    for (int x = 0; x < 4; ++x) {
      Vector p[4];
#pragma GCC unroll 4
      for (int y = 0; y < 4; ++y) p[y] = load(pixels[4 * y + x] + (c & inside[4 * y + x]));
      d[0][x] = subtract(p[0], p[2]);
      d[1][x] = add(p[1], p[2]);
      d[2][x] = subtract(p[2], p[1]);
      d[3][x] = subtract(p[1], p[3]);
    }
    float* at = to + (c / kBlockK * rows + row) * kRowStride + c % kBlockK;
#pragma GCC unroll 4
    for (int y = 0; y < 4; ++y) {
      const Vector v[4] = {subtract(d[y][0], d[y][2]), add(d[y][1], d[y][2]), subtract(d[y][2], d[y][1]), subtract(d[y][1], d[y][3])};
#pragma GCC unroll 4
      for (int x = 0; x < 4; ++x) {
        checks = fma(v[x], nothing, checks);
        store(at + (4 * y + x) * plan.place, v[x]);
      }
    }
  }
  return checks;
}

/// A' m A of a tile's 16 lines, each `line` floats after the other: the four results, 32 columns each, with the bias, to `results`.
Vector transform_sums(const float* lines, std::int64_t line, const float* bias, float* results, Vector checks) {
  const Vector nothing = zero();
  for (std::int64_t n = 0; n < kPanelColumns; n += kWidth) {
    Vector rows[2][4];
#pragma GCC unroll 4
    for (int x = 0; x < 4; ++x) {
      Vector m[4];
#pragma GCC unroll 4
      for (int y = 0; y < 4; ++y) m[y] = load(lines + (4 * y + x) * line + n);
      rows[0][x] = add(add(m[0], m[1]), m[2]);
      rows[1][x] = subtract(subtract(m[1], m[2]), m[3]);
    }
    const Vector added = load(bias + n);
#pragma GCC unroll 2
    for (int y = 0; y < 2; ++y) {
      const Vector first = add(add(add(rows[y][0], rows[y][1]), rows[y][2]), added);
      const Vector second = add(subtract(subtract(rows[y][1], rows[y][2]), rows[y][3]), added);
      checks = fma(first, nothing, fma(second, nothing, checks));
      store(results + (2 * y) * kPanelColumns + n, first);
      store(results + (2 * y + 1) * kPanelColumns + n, second);
    }
  }
  return checks;
}

/// A pixel's 32 columns, with a sum, relu behind it, one of them or neither.
template <bool kSum, bool kRelu>
void put_pixel(const float* from, const float* other, float* to) {
  for (std::int64_t n = 0; n < kPanelColumns; n += Lanes::kCount) {
    Floats::Vector x = InOrderF32::load(from + n);
    if constexpr (kSum) x = Floats::add(x, InOrderF32::load(other + n));
    if constexpr (kRelu) x = Floats::at_least(Floats::all(0.0f), x);
    InOrderF32::store(to + n, x);
  }
}

using Put = void (*)(const float*, const float*, float*);

/// Null where finish_rows() is to be asked.
Put put_of(const Epilogue& e) {
  const bool relu = e.unary == Unary::kRelu;
  const bool sum = e.binary == Binary::kAdd;
  if ((e.unary != Unary::kNone && !relu) || (e.binary != Binary::kNone && !(sum && (e.binary_first || !relu)))) return nullptr;
  return sum ? (relu ? put_pixel<true, true> : put_pixel<true, false>) : (relu ? put_pixel<false, true> : put_pixel<false, false>);
}

void write_tile(const WinogradArgs& args, const Tile& tile, std::int64_t column, Put put, float* results) {
  const std::int64_t valid = args.n - column < kPanelColumns ? args.n - column : kPanelColumns;
  for (int i = 0; i < 4; ++i, results += kPanelColumns) {
    const std::int64_t y = tile.y + i / 2;
    const std::int64_t x = tile.x + i % 2;
    if (y >= args.out[0] || x >= args.out[1]) continue;
    const std::int64_t pixel = (tile.image * args.out[0] + y) * args.out[1] + x;
    float* to = args.to + pixel * args.ld_to + column;
    if (put != nullptr && valid == kPanelColumns) {
      put(results, static_cast<const float*>(args.epilogue.other) + pixel * args.epilogue.ld_other + column, to);
      continue;
    }
    if (args.epilogue.any()) finish_rows(args.epilogue, pixel, 1, column, valid, results, kPanelColumns);
    __builtin_memcpy(to, results, static_cast<std::size_t>(valid) * 4);
  }
}

bool is_nan_in(Vector v) {
  float parts[kWidth];
  store(parts, v);
  float sum = 0;
  for (const float part : parts) sum += part;
  return sum != sum;
}

}  // namespace

std::size_t winograd_scratch_bytes(const WinogradArgs& args, const LinearBlock& block) {
  const Plan plan = plan_of(args, block);
  return static_cast<std::size_t>(plan.a_bytes + kPlaces * plan.tiles * kPanelColumns * 4);
}

bool winograd(const WinogradArgs& args, const LinearBlock& block, void* scratch) {
  const Plan plan = plan_of(args, block);
  auto* pixels = static_cast<float*>(scratch);
  float* sums = pixels + plan.a_bytes / 4;
  const std::int64_t place_bytes = winograd_place_bytes(args.channels);
  const Put put = put_of(args.epilogue);
  alignas(64) static constexpr float kNone[kPanelColumns] = {};
  Vector checks = zero();
  for (std::int64_t tile = block.row_begin; tile < block.row_end; tile += plan.tiles) {
    const std::int64_t tiles = block.row_end - tile < plan.tiles ? block.row_end - tile : plan.tiles;
    for (std::int64_t t = 0; t < tiles; ++t) checks = transform_pixels(args, plan, tile_of(args, tile + t), t, tiles, pixels, checks);
    const std::int64_t groups = ceil_div(tiles, kRows);
    const std::int64_t line = tiles * kPanelColumns;  // from one place's sums to the next
    for (std::int64_t panel = block.panel_begin; panel < block.panel_end; ++panel) {
      const char* b = static_cast<const char*>(args.packed) + panel * kPlaces * place_bytes;
      const std::int64_t stretches = ceil_div(args.channels, kAheadRows) * groups * (kPanelColumns / kColumns);
      for (int place = 0; place < kPlaces; ++place, b += place_bytes) {
        const bool fetch = place + 1 < kPlaces || panel + 1 < block.panel_end;
        const char* ahead = b + place_bytes;
        const std::int64_t lines = fetch ? ceil_div(place_bytes / 64, stretches) : 0;
        const std::int64_t ahead_bytes = lines * ceil_div(args.channels, kAheadRows) * 64;
        for (std::int64_t group = 0; group < groups; ++group) {
          const std::int64_t first = tiles * group / groups;
          const std::int64_t here = tiles * (group + 1) / groups - first;
          const float* from = pixels + place * plan.place + first * kRowStride;
          float* to = sums + place * line + first * kPanelColumns;
          const Choice choice = kMultiply[here - 1].panels == 1 ? kMultiply[here - 1] : kMultiplyOne[here - 1];
          for (std::int64_t part = 0; part < kPanelColumns; part += kColumns, ahead += ahead_bytes)
            choice.run({from, tiles * kRowStride, b + part * 4, 0, args.channels, kNone, 0, to + part, kPanelColumns, ahead, lines});
        }
      }
      alignas(64) float bias[kPanelColumns] = {};
      const std::int64_t column = panel * kPanelColumns;
      const std::int64_t valid = args.n - column < kPanelColumns ? args.n - column : kPanelColumns;
      if (args.bias != nullptr) __builtin_memcpy(bias, args.bias + column, static_cast<std::size_t>(valid) * 4);
      for (std::int64_t t = 0; t < tiles; ++t) {
        alignas(64) float results[4 * kPanelColumns];
        checks = transform_sums(sums + t * kPanelColumns, line, bias, results, checks);
        write_tile(args, tile_of(args, tile + t), column, put, results);
      }
    }
  }
  return !is_nan_in(checks);
}

}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
