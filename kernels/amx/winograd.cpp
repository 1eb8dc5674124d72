// winograd in fp32 on AMX: F(2x2, 3x3), whose products are of numbers in three bf16 parts each (parts_products.h), with errors of the size
// of vectors'.
//
// Loops, outermost first: blocks of tiles, whose transformed pixels are split as they are written, chunks of panels, the places of a tile
// (whose pixels stay in L2 for all panels of a chunk), panels, strips of 32 tiles. A panel's weights, packed as for vectors, are split
// beside the products of the ones before. What the places of a chunk give waits, a line a place and tile, until results are put together.
// Tiles or weights that parts cannot stand for take their block of tiles to the vectors' kernel.
#include "kernels/amx/winograd.h"

#include "kernels/amx/parts_products.h"
#include "kernels/simd/winograd.h"
#include "kernels/simd/winograd_steps.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

constexpr int kResults = 2;  // of a tile, down and across
constexpr int kPlaces = winograd_places(kResults);
constexpr std::int64_t kHeadBytes = 64;   // of scratch
constexpr std::int64_t kChunkMost = 8;    // panels
constexpr std::int64_t kLeastTiles = 64;  // of a block, where L2 holds fewer: weights come from L3 or memory once a block
constexpr std::int64_t kApart = 192;      // bytes between places, which would meet in the same sets of L1 else

/// What a worker keeps in front of its pixels from one block to the next.
struct Head {
  std::int64_t tile;  // the first
  std::int64_t tiles;
  bool refused;  // parts cannot stand for them
};

struct PartsPlan {
  std::int64_t steps;
  std::int64_t tiles;        // of a block, a multiple of 32
  std::int64_t chunk;        // panels
  std::int64_t place_bytes;  // of A
  std::int64_t b_bytes;      // of one of two
  std::int64_t line;         // floats from one place's sums to the next
  std::int64_t sums_bytes;
};

PartsPlan parts_plan(const WinogradArgs& args, const LinearBlock& block) {
  PartsPlan plan{};
  const std::int64_t tiles = block.row_end - block.row_begin;
  plan.steps = steps_of(args.channels);
  plan.chunk = equal_pieces(block.panel_end - block.panel_begin, kChunkMost);
  const std::int64_t bytes = kPlaces * (plan.steps * kATileBytes / 16 + plan.chunk * kPanelColumns * 4);  // of a tile
  const std::int64_t most = at_least(block.l2_bytes * 3 / 4 / bytes / kStripRows * kStripRows, kLeastTiles);
  plan.tiles = ceil_div(equal_pieces(tiles, most), kStripRows) * kStripRows;
  plan.place_bytes = plan.tiles / 16 * plan.steps * kATileBytes + kApart;
  plan.b_bytes = plan.steps * kBStepBytes;
  plan.line = (plan.tiles + 1) * kPanelColumns;
  plan.sums_bytes = plan.chunk * kPlaces * plan.line * 4;
  return plan;
}

template <typename Image>
class Product {
 public:
  Product(const WinogradArgs& args, const LinearBlock& block, void* scratch)
      : args_(args),
        block_(block),
        plan_(parts_plan(args, block)),
        head_(static_cast<Head*>(scratch)),
        a_(static_cast<char*>(scratch) + kHeadBytes),
        b_(a_ + kPlaces * plan_.place_bytes),
        sums_(reinterpret_cast<float*>(b_ + 2 * plan_.b_bytes)),
        spare_(reinterpret_cast<char*>(sums_) + plan_.sums_bytes),
        put_(put_of(args)) {}

  bool run() {
    shared_ = core_is_shared();
    tile_configure(config_for(16));
    bool finite = true;
    for (std::int64_t tile = block_.row_begin; tile < block_.row_end; tile += plan_.tiles) {
      const std::int64_t tiles = at_most(block_.row_end - tile, plan_.tiles);
      if (!run_tiles(tile, tiles)) finite = by_vectors(tile, tiles) && finite;
    }
    tile_release();
    return !is_nan_in(checks_) && finite;
  }

 private:
  /// A place of a panel.
  struct Item {
    std::int64_t panel;  // the block's end: there is no more
    std::int64_t first;  // of the chunk
    std::int64_t end;
    std::int64_t place;
  };

  [[nodiscard]] Item after(const Item& now) const {
    Item next = now;
    if (++next.panel < now.end) return next;
    next.panel = now.first;
    if (++next.place < kPlaces) return next;
    return {now.end, now.end, at_most(now.end + plan_.chunk, block_.panel_end), 0};
  }

  /// All panels of a block of tiles. False where parts cannot stand for something.
  bool run_tiles(std::int64_t tile, std::int64_t tiles) {
    // Panels decide on the size of blocks, too: what is there may be the last of several.
    const bool same = block_.same_rows && tiles == block_.row_end - block_.row_begin && head_->tile == tile && head_->tiles == tiles;
    if (!same) transform(tile, tiles);
    if (head_->refused) return false;
    Item now{block_.panel_begin, block_.panel_begin, at_most(block_.panel_begin + plan_.chunk, block_.panel_end), 0};
    turn_ ^= 1;
    if (!splitter(now, 1).finish()) return false;
    while (now.panel < block_.panel_end) {
      const Item next = after(now);
      if (!multiply(now, next, tiles)) return false;
      if (next.first != now.first) finish(now, tile, tiles);
      now = next;
    }
    return true;
  }

  void transform(std::int64_t tile, std::int64_t tiles) {
    alignas(64) float stage[2][kPlaces][16];
    __m512i largest = _mm512_setzero_si512();
    bool fits = true;
    for (std::int64_t t = 0; t < tiles; ++t) {
      const PixelsOfTile<kResults, Image> pixels(args_, tile + t);
      char* to = a_ + t / 16 * plan_.steps * kATileBytes + t % 16 * 64;
      for (std::int64_t c = 0; c < args_.channels; c += kStepK, to += kATileBytes) {
        for (int half = 0; half < 2; ++half) {
          pixels.transform(
              c + half * 16, [&](std::int64_t place, Numbers value)
                                 __attribute__((always_inline)) { InOrderF32::store(stage[half][place], value); });
        }
        for (std::int64_t place = 0; place < kPlaces; ++place) {
          split_pairs(_mm512_load_ps(stage[0][place]), _mm512_load_ps(stage[1][place]), to + place * plan_.place_bytes, kTileBytes,
                      &largest);
        }
      }
      fits = fits && is_within(_mm512_reduce_max_epu32(largest), kLeastOfA);
      largest = _mm512_setzero_si512();
    }
    *head_ = {tile, tiles, !fits};
  }

  [[nodiscard]] Splitter splitter(const Item& item, std::int64_t slots) {
    const float* from = static_cast<const float*>(args_.packed) + (item.panel * kPlaces + item.place) * args_.channels * kPanelColumns;
    return {from, args_.channels, plan_.steps, b_ + turn_ * plan_.b_bytes, slots};
  }

  [[nodiscard]] float* sums(const Item& item) const { return sums_ + ((item.panel - item.first) * kPlaces + item.place) * plan_.line; }

  /// Multiplies `now` and splits the weights of `next`; false where parts cannot stand for these.
  bool multiply(const Item& now, const Item& next, std::int64_t tiles) {
    alignas(64) static constexpr float kNone[kPanelColumns] = {};
    const std::int64_t group_bytes = plan_.steps * kATileBytes;
    const char* b = b_ + turn_ * plan_.b_bytes;
    turn_ ^= 1;
    Splitter splits = next.panel < block_.panel_end ? splitter(next, ceil_div(tiles, kStripRows) * plan_.steps * kSlots) : Splitter();
    const Quad from = in_start(const_cast<char*>(reinterpret_cast<const char*>(kNone)));
    for (std::int64_t t = 0; t < tiles; t += kStripRows) {
      const char* a = a_ + now.place * plan_.place_bytes + t / 16 * group_bytes;
      const Quad to = in_rows(reinterpret_cast<char*>(sums(now) + t * kPanelColumns), kPanelColumns * 4);
      products(tiles - t > 16, a, a + group_bytes, b, from, to, &splits);
    }
    return splits.finish();
  }

  void products(bool lower, const char* a0, const char* a1, const char* b, const Quad& from, const Quad& to, Splitter* splits) const {
    if (shared_) {
      lower ? multiply_halves_by_parts<false, true>(a0, a1, b, plan_.steps, from, to, splits, {})
            : multiply_halves_by_parts<false, false>(a0, a1, b, plan_.steps, from, to, splits, {});
    } else {
      lower ? multiply_by_parts<false, true>(a0, a1, b, plan_.steps, from, to, splits, {})
            : multiply_by_parts<false, false>(a0, a1, b, plan_.steps, from, to, splits, {});
    }
  }

  /// The results of a chunk, of which `of` is an item.
  void finish(const Item& of, std::int64_t tile, std::int64_t tiles) {
    for (std::int64_t panel = of.first; panel < of.end; ++panel) {
      alignas(64) float bias[kPanelColumns];
      const std::int64_t column = panel * kPanelColumns;
      kernels::load_bias(args_, column, kPanelColumns, bias);
      const float* lines = sums_ + (panel - of.first) * kPlaces * plan_.line;
      for (std::int64_t t = 0; t < tiles; ++t) {
        alignas(64) float results[kResults * kResults * kPanelColumns];
        checks_ = transform_sums<kResults>(lines + t * kPanelColumns, plan_.line, bias, results, checks_);
        write_tile<kResults>(args_, tile + t, column, put_, results);
      }
    }
  }

  /// False where a number is not finite.
  bool by_vectors(std::int64_t tile, std::int64_t tiles) {
    LinearBlock block = block_;
    block.row_begin = tile;
    block.row_end = tile + tiles;
    block.same_rows = false;
    return avx512::winograd(args_, block, spare_);
  }

  const WinogradArgs& args_;
  const LinearBlock& block_;
  PartsPlan plan_;
  Head* head_;
  char* a_;
  char* b_;
  float* sums_;
  char* spare_;  // of the vectors' kernel
  Put put_;
  bool shared_ = false;  // the core
  std::int64_t turn_ = 0;
  Numbers checks_ = Floats::all(0.0f);
};

}  // namespace

std::size_t winograd_scratch_bytes(const WinogradArgs& args, const LinearBlock& block) {
  const PartsPlan plan = parts_plan(args, block);
  const auto by_vectors = [&](std::int64_t tiles) {
    LinearBlock part = block;
    part.row_end = block.row_begin + tiles;
    return static_cast<std::int64_t>(avx512::winograd_scratch_bytes(args, part));
  };
  // Vectors may want more for the last block of tiles than for longer ones.
  const std::int64_t tiles = block.row_end - block.row_begin;
  const std::int64_t vectors = at_least(by_vectors(at_most(tiles, plan.tiles)), by_vectors((tiles - 1) % plan.tiles + 1));
  return static_cast<std::size_t>(kHeadBytes + kPlaces * plan.place_bytes + 2 * plan.b_bytes + plan.sums_bytes + vectors);
}

bool winograd(const WinogradArgs& args, const LinearBlock& block, void* scratch) {
  return args.from_dtype == DType::kF32 ? Product<InOrderF32>(args, block, scratch).run()
                                        : Product<InOrderBf16>(args, block, scratch).run();
}

}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
