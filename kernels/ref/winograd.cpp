// The same method with every sum in double; with bf16 inside, transformed pixels are rounded to it.
#include "kernels/ref/winograd.h"

#include <cmath>

#include "kernels/bf16.h"
#include "kernels/ref/element.h"
#include "kernels/ref/linear.h"

namespace ipexrun::kernels::ref {
namespace {

struct Place {
  std::int64_t image;
  std::int64_t y;  ///< of the tile's first result
  std::int64_t x;
};

double pixel(const WinogradArgs& args, const Place& tile, std::int64_t y, std::int64_t x, std::int64_t c) {
  y += tile.y - args.padding[0];
  x += tile.x - args.padding[1];
  if (y < 0 || y >= args.in[0] || x < 0 || x >= args.in[1]) return 0;
  return get(args.from, args.from_dtype, tile.image * args.image_stride + y * args.row_stride + x * args.pixel_stride + c);
}

/// Element (i, j) of B' d B.
template <int kTile>
double transformed(const WinogradArgs& args, const Place& tile, int i, int j, std::int64_t c) {
  using Matrices = WinogradMatrices<kTile>;
  double sum = 0;
  for (int y = 0; y < kTile + 2; ++y) {
    for (int x = 0; x < kTile + 2; ++x) {
      const double factor = Matrices::kInput[i][y] * Matrices::kInput[j][x];
      if (factor != 0) sum += factor * pixel(args, tile, y, x, c);
    }
  }
  return args.bf16 ? static_cast<double>(bf16_to_f32(bf16_from_f32(static_cast<float>(sum)))) : sum;
}

template <int kTile>
double weight_of(const WinogradArgs& args, std::int64_t n, int place, std::int64_t c) {
  const char* at = static_cast<const char*>(args.packed) +
                   (n / kPanelColumns * winograd_places(kTile) + place) * winograd_place_bytes(args.channels, args.bf16);
  const std::int64_t column = n % kPanelColumns;
  if (args.bf16) return static_cast<double>(bf16_to_f32(reinterpret_cast<const std::uint16_t*>(at)[packed_offset(c, column)]));
  return static_cast<double>(reinterpret_cast<const float*>(at)[c * kPanelColumns + column]);
}

template <int kTile>
bool run(const WinogradArgs& args, const LinearBlock& block, double* pixels) {
  using Matrices = WinogradMatrices<kTile>;
  constexpr int kSide = kTile + 2;
  constexpr int kPlaces = winograd_places(kTile);
  const std::int64_t down = winograd_tiles(args.out[0], kTile);
  const std::int64_t across = winograd_tiles(args.out[1], kTile);
  const std::int64_t last = block.panel_end * kPanelColumns;
  const std::int64_t column_end = last < args.n ? last : args.n;
  bool finite = true;
  for (std::int64_t t = block.row_begin; t < block.row_end; ++t) {
    const Place tile{t / across / down, t / across % down * kTile, t % across * kTile};
    for (int place = 0; place < kPlaces; ++place) {
      for (std::int64_t c = 0; c < args.channels; ++c)
        pixels[place * args.channels + c] = transformed<kTile>(args, tile, place / kSide, place % kSide, c);
    }
    for (std::int64_t n = block.panel_begin * kPanelColumns; n < column_end; ++n) {
      double products[kPlaces] = {};
      for (int place = 0; place < kPlaces; ++place) {
        for (std::int64_t c = 0; c < args.channels; ++c)
          products[place] += pixels[place * args.channels + c] * weight_of<kTile>(args, n, place, c);
      }
      for (int y = 0; y < kTile && tile.y + y < args.out[0]; ++y) {
        for (int x = 0; x < kTile && tile.x + x < args.out[1]; ++x) {
          double sum = args.bias != nullptr ? get(args.bias, args.bias_dtype, n) : 0;
          for (int place = 0; place < kPlaces; ++place)
            sum += Matrices::kOutput[y][place / kSide] * Matrices::kOutput[x][place % kSide] * products[place];
          finite = finite && std::isfinite(sum);
          const std::int64_t to = (tile.image * args.out[0] + tile.y + y) * args.out[1] + tile.x + x;
          put(args.to, args.to_dtype, to * args.ld_to + n, finished(args.epilogue, to, n, sum));
        }
      }
    }
  }
  return finite;
}

}  // namespace

std::size_t winograd_scratch_bytes(const WinogradArgs& args, const LinearBlock&) {
  return static_cast<std::size_t>(winograd_places(args.tile) * args.channels) * sizeof(double);
}

bool winograd(const WinogradArgs& args, const LinearBlock& block, void* scratch) {
  auto* pixels = static_cast<double*>(scratch);
  return args.tile == 2 ? run<2>(args, block, pixels) : run<4>(args, block, pixels);
}

}  // namespace ipexrun::kernels::ref
