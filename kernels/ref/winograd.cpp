// The same method with every sum in double; with bf16 inside, transformed pixels are rounded to it.
#include "kernels/ref/winograd.h"

#include <cmath>

#include "kernels/bf16.h"
#include "kernels/ref/element.h"
#include "kernels/ref/linear.h"

namespace ipexrun::kernels::ref {
namespace {

constexpr double kInput[4][4] = {{1, 0, -1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, 1, 0, -1}};
constexpr double kOutput[2][4] = {{1, 1, 1, 0}, {0, 1, -1, -1}};

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
double transformed(const WinogradArgs& args, const Place& tile, int i, int j, std::int64_t c) {
  double sum = 0;
  for (int y = 0; y < 4; ++y) {
    for (int x = 0; x < 4; ++x) {
      if (kInput[i][y] != 0 && kInput[j][x] != 0) sum += kInput[i][y] * kInput[j][x] * pixel(args, tile, y, x, c);
    }
  }
  return args.bf16 ? static_cast<double>(bf16_to_f32(bf16_from_f32(static_cast<float>(sum)))) : sum;
}

double weight_of(const WinogradArgs& args, std::int64_t n, int place, std::int64_t c) {
  const char* at = static_cast<const char*>(args.packed) + (n / kPanelColumns * 16 + place) * winograd_place_bytes(args.channels, args.bf16);
  const std::int64_t column = n % kPanelColumns;
  if (args.bf16) return static_cast<double>(bf16_to_f32(reinterpret_cast<const std::uint16_t*>(at)[packed_offset(c, column)]));
  return static_cast<double>(reinterpret_cast<const float*>(at)[c * kPanelColumns + column]);
}

}  // namespace

std::size_t winograd_scratch_bytes(const WinogradArgs&, const LinearBlock&) { return 0; }

bool winograd(const WinogradArgs& args, const LinearBlock& block, void*) {
  const std::int64_t down = winograd_tiles(args.out[0]);
  const std::int64_t across = winograd_tiles(args.out[1]);
  const std::int64_t last = block.panel_end * kPanelColumns;
  const std::int64_t column_end = last < args.n ? last : args.n;
  bool finite = true;
  for (std::int64_t t = block.row_begin; t < block.row_end; ++t) {
    const Place tile{t / across / down, t / across % down * 2, t % across * 2};
    for (std::int64_t n = block.panel_begin * kPanelColumns; n < column_end; ++n) {
      double products[16] = {};
      for (int place = 0; place < 16; ++place) {
        for (std::int64_t c = 0; c < args.channels; ++c)
          products[place] += transformed(args, tile, place / 4, place % 4, c) * weight_of(args, n, place, c);
      }
      for (int y = 0; y < 2 && tile.y + y < args.out[0]; ++y) {
        for (int x = 0; x < 2 && tile.x + x < args.out[1]; ++x) {
          double sum = args.bias != nullptr ? get(args.bias, args.bias_dtype, n) : 0;
          for (int place = 0; place < 16; ++place) sum += kOutput[y][place / 4] * kOutput[x][place % 4] * products[place];
          finite = finite && std::isfinite(sum);
          const std::int64_t to = (tile.image * args.out[0] + tile.y + y) * args.out[1] + tile.x + x;
          put(args.to, args.to_dtype, to * args.ld_to + n, finished(args.epilogue, to, n, sum));
        }
      }
    }
  }
  return finite;
}

}  // namespace ipexrun::kernels::ref
