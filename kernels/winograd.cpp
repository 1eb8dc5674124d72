// Packs the weight, chooses the variant, splits tiles and channels among the workers and gives each its scratch. Compiled for the base
// instruction set.
#include "kernels/winograd.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

#include "kernels/amx/winograd.h"
#include "kernels/bf16.h"
#include "kernels/choose.h"
#include "kernels/ref/winograd.h"
#include "kernels/shares.h"
#include "kernels/simd/winograd.h"

namespace ipexrun::kernels {
namespace {

// A variant that the compiler could not build is not in it (IPEXRUN_KERNELS_* from CMakeLists.txt).
constexpr WinogradVariant kF32[] = {
#ifdef IPEXRUN_KERNELS_AVX512
    {"avx512", kLevelAvx512, 16, avx512::winograd_scratch_bytes, avx512::winograd},
#endif
#ifdef IPEXRUN_KERNELS_AVX2
    {"avx2", kLevelAvx2, 8, avx2::winograd_scratch_bytes, avx2::winograd},
#endif
    {"ref", 0, 1, ref::winograd_scratch_bytes, ref::winograd},
};

constexpr WinogradVariant kParts[] = {
#ifdef IPEXRUN_KERNELS_AMX
    {"amx", kLevelAvx512 | kIsaAvx512Bf16 | kIsaAmxBf16, kStepK, amx::winograd_scratch_bytes, amx::winograd},
#endif
    {"ref", 0, 1, ref::winograd_scratch_bytes, ref::winograd},
};

/// Beyond it scratch would be more than a thread keeps from call to call, and sums be stored between blocks of channels.
constexpr std::int64_t kPartsMostChannels = 768;

constexpr WinogradVariant kBf16[] = {
#ifdef IPEXRUN_KERNELS_AVX512_BF16
    {"avx512_bf16", kLevelAvx512 | kIsaAvx512Bf16, kStepK, avx512_bf16::winograd_scratch_bytes, avx512_bf16::winograd},
#endif
    {"ref", 0, 1, ref::winograd_scratch_bytes, ref::winograd},
};

const WinogradVariant& variant_in(const WinogradVariants& table, std::int64_t channels, IsaSet isa) {
  std::size_t i = 0;
  while (i + 1 < table.count && (!isa_has(isa, table.first[i].needs) || channels % table.first[i].channels_at_once != 0)) ++i;
  return table.first[i];
}

const WinogradVariant& variant_of(std::int64_t channels, bool bf16, IsaSet isa) {
  return variant_in(winograd_variants(bf16), channels, isa);
}

struct PackJob {
  const void* weight;
  DType dtype;
  const std::int64_t* strides;
  std::int64_t channels;
  std::int64_t n;
  bool bf16;
  char* to;
};

double number_of(const PackJob& job, std::int64_t at) {
  return static_cast<double>(job.dtype == DType::kF32 ? static_cast<const float*>(job.weight)[at]
                                                      : bf16_to_f32(static_cast<const std::uint16_t*>(job.weight)[at]));
}

/// A panel's columns of one channel in: of an element of the weight, or of a place.
using Columns = double[kPanelColumns];

/// G g of one dimension: to[i] of g[0], g[1] and g[2].
template <int kTile>
void transform(const Columns& first, const Columns& second, const Columns& third, int i, Columns& to) {
  constexpr auto& kWeight = WinogradMatrices<kTile>::kWeight;
  for (std::int64_t n = 0; n < kPanelColumns; ++n) to[n] = kWeight[i][0] * first[n] + kWeight[i][1] * second[n] + kWeight[i][2] * third[n];
}

template <int kTile>
void pack_task(void* arg, int panel) {
  const auto& job = *static_cast<const PackJob*>(arg);
  constexpr int kSide = kTile + 2;
  constexpr int kPlaces = winograd_places(kTile);
  const std::int64_t place_bytes = winograd_place_bytes(job.channels, job.bf16);
  char* to = job.to + panel * kPlaces * place_bytes;
  if (job.bf16) std::memset(to, 0, static_cast<std::size_t>(kPlaces * place_bytes));  // what pads the channels
  const std::int64_t left = job.n - panel * kPanelColumns;
  const std::int64_t columns = left < kPanelColumns ? left : kPanelColumns;
  Columns g[3][3] = {};
  for (std::int64_t c = 0; c < job.channels; ++c) {
    for (std::int64_t column = 0; column < columns; ++column) {
      const std::int64_t from = (panel * kPanelColumns + column) * job.strides[0] + c * job.strides[1];
      for (int y = 0; y < 3; ++y) {
        for (int x = 0; x < 3; ++x) g[y][x][column] = number_of(job, from + y * job.strides[2] + x * job.strides[3]);
      }
    }
    for (int i = 0; i < kSide; ++i) {
      Columns down[3];
      for (int x = 0; x < 3; ++x) transform<kTile>(g[0][x], g[1][x], g[2][x], i, down[x]);
      for (int j = 0; j < kSide; ++j) {
        Columns transformed;
        transform<kTile>(down[0], down[1], down[2], j, transformed);
        char* place = to + (i * kSide + j) * place_bytes;
        for (std::int64_t n = 0; n < kPanelColumns; ++n) {
          const auto number = static_cast<float>(transformed[n]);
          if (job.bf16) {
            reinterpret_cast<std::uint16_t*>(place)[packed_offset(c, n)] = bf16_from_f32(number);
          } else {
            reinterpret_cast<float*>(place)[c * kPanelColumns + n] = number;
          }
        }
      }
    }
  }
}

/// Of tiles: a product for each place, of pixels that are transformed for each block of panels.
constexpr GridCosts of_tiles(GridCosts costs) {
  costs.rows = 6;
  costs.panel = 1;
  costs.round = 1;
  costs.row_steps = 1;
  return costs;
}

/// A variant that keeps what its runs say.
struct Checked {
  const WinogradVariant& variant;
  std::atomic<bool>& refused;

  [[nodiscard]] std::size_t scratch_bytes(const WinogradArgs& args, const LinearBlock& block) const {
    return variant.scratch_bytes(args, block);
  }
  void run(const WinogradArgs& args, const LinearBlock& block, void* scratch) const {
    if (!variant.run(args, block, scratch)) refused.store(true, std::memory_order_relaxed);  // run() of Parallel orders it before our read
  }
};

}  // namespace

WinogradVariants winograd_parts_variants() { return {kParts, sizeof(kParts) / sizeof(kParts[0])}; }

WinogradVariants winograd_variants(bool bf16) {
  return bf16 ? WinogradVariants{kBf16, sizeof(kBf16) / sizeof(kBf16[0])} : WinogradVariants{kF32, sizeof(kF32) / sizeof(kF32[0])};
}

std::size_t packed_winograd_bytes(std::int64_t channels, std::int64_t n, bool bf16, int tile) {
  constexpr std::int64_t kLargest = std::numeric_limits<int>::max();
  if (channels <= 0 || n <= 0 || channels > kLargest || n > kLargest || (tile != 2 && (tile != 4 || bf16))) return 0;
  return static_cast<std::size_t>(panels_of(n)) * static_cast<std::size_t>(winograd_places(tile)) *
         static_cast<std::size_t>(winograd_place_bytes(channels, bf16));
}

void pack_winograd(const void* weight, DType dtype, const std::int64_t strides[4], std::int64_t channels, std::int64_t n, bool bf16,
                   int tile, void* to, const Parallel& parallel) {
  PackJob job{weight, dtype, strides, channels, n, bf16, static_cast<char*>(to)};
  parallel(static_cast<int>(panels_of(n)), tile == 2 ? pack_task<2> : pack_task<4>, &job);
}

bool winograd_supported(std::int64_t channels, std::int64_t n, bool bf16, int tile, IsaSet isa) {
  return packed_winograd_bytes(channels, n, bf16, tile) != 0 && variant_of(channels, bf16, isa).needs != 0;
}

bool winograd_has_parts(const WinogradArgs& args, IsaSet isa) {
  constexpr std::int64_t kTiles = 32;  // that are multiplied at once
  const std::int64_t tiles = args.images * winograd_tiles(args.out[0], args.tile) * winograd_tiles(args.out[1], args.tile);
  return !args.bf16 && args.tile == 2 && tiles >= kTiles && args.n >= kPanelColumns && args.channels <= kPartsMostChannels &&
         variant_in(winograd_parts_variants(), args.channels, isa).needs != 0;
}

const char* winograd_variant(std::int64_t channels, bool bf16, IsaSet isa) { return variant_of(channels, bf16, isa).name; }

WinogradResult winograd(const WinogradArgs& args, const Parallel& parallel, IsaSet isa) {
  const std::int64_t tiles = args.images * winograd_tiles(args.out[0], args.tile) * winograd_tiles(args.out[1], args.tile);
  if (tiles <= 0 || args.n <= 0) return WinogradResult::kDone;
  const std::int64_t places = winograd_places(args.tile);
  const int workers = workers_for(places * tiles, args.n, std::max<std::int64_t>(args.channels, 1), parallel);
  const bool parts = args.parts && winograd_has_parts(args, isa);
  const GridCosts costs = parts ? kGridCostsParts : of_tiles(args.bf16 ? kGridCostsBf16 : kGridCostsF32);
  const Shares shares = shares_of(tiles, args.n, places * steps_of(args.channels), workers, costs);
  const WinogradVariant& variant =
      parts ? variant_in(winograd_parts_variants(), args.channels, isa) : variant_of(args.channels, args.bf16, isa);
  std::atomic<bool> refused{false};
  if (!run_blocks(args, Checked{variant, refused}, shares, parallel)) return WinogradResult::kNoMemory;
  return refused.load(std::memory_order_relaxed) ? WinogradResult::kNotFinite : WinogradResult::kDone;
}

}  // namespace ipexrun::kernels
