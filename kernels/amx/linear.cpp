// linear on AMX: 32 x 32 of C in four tiles, two tiles of A and two of B beside them.
//
// Loops, outermost first: blocks of rows (their A, converted to bf16 once, stays in L2), chunks of panels (their part of B stays in
// L2), blocks of K (only beyond 1024), strips of 32 rows, panels. Between blocks of K the sums wait in fp32 in L2. The
// bias is what the first block of K starts from. The last block of K leaves its sums in C where that is fp32 and whole,
// else in a stage whose rows are converted and written to C between the products of the next block. Neighbours in a row of C follow
// each other: written down a column, each 64 bytes of a wide C would cost a page walk (seen: half the speed).
#include "kernels/amx/linear.h"

#include <immintrin.h>

#include "kernels/amx/rows.h"
#include "kernels/amx/tile.h"
#include "kernels/packed.h"

namespace ipexrun::kernels::amx {
namespace {

constexpr std::int64_t kTileBytes = 1024;
constexpr std::int64_t kBlockBytes = 4 * kTileBytes;  // 32 x 32 of C in fp32
constexpr std::int64_t kStripRows = 32;
// Sizes by measurement on a core with 48 KiB of L1 and 2 MiB of L2 (bench/linear_vs_torch.py).
constexpr std::int64_t kStepsWhole = 32;            // up to 1024 rows of K, one block: the sums of more would cost more than they spare
constexpr std::int64_t kStepsMost = 16;             // of a block of a longer K: a strip's 512 rows stay in L1
constexpr std::int64_t kPackedABytes = 1280 << 10;  // A of a row block: the more rows, the less often B comes from beyond L2
constexpr std::int64_t kRowsMost = 384;
constexpr std::int64_t kChunkBytes = 256 << 10;  // B of a chunk of panels, one block of K
constexpr std::int64_t kPanelsMost = 16;
constexpr std::int64_t kSumsBytes = 384 << 10;  // sums of a row block and a chunk
constexpr std::int64_t kPrefetchBytes = 4096;   // of B, ahead of the products that use it first

/// Where the four tiles of a 32 x 32 block of fp32 lie: how far the lines of one, the lower pair and the right ones are from the
/// first. All in bytes.
struct Quad {
  char* at;
  std::int64_t line;
  std::int64_t down;
  std::int64_t right;
};

constexpr Quad in_rows(char* at, std::int64_t line) { return {at, line, 16 * line, 64}; }
/// The same 16 numbers in each line of a tile.
constexpr Quad in_bias(char* at) { return {at, 0, 0, 64}; }

struct Plan {
  std::int64_t steps;  // of 32 rows of K
  std::int64_t k_blocks;
  std::int64_t row_block;  // a multiple of 32
  std::int64_t chunk;      // panels
  std::int64_t a_bytes;
  std::int64_t sums_bytes;
  std::int64_t bias_bytes;
};

constexpr std::int64_t at_least(std::int64_t value, std::int64_t low) { return value < low ? low : value; }
constexpr std::int64_t at_most(std::int64_t value, std::int64_t high) { return value > high ? high : value; }
/// The size of the pieces when `total` is cut into equal ones of at most `most`: 260 is 2 x 130, not 256 + 4.
constexpr std::int64_t equal_pieces(std::int64_t total, std::int64_t most) { return ceil_div(total, ceil_div(total, most)); }

Plan plan_of(const LinearArgs& args, const LinearBlock& block) {
  Plan plan{};
  const std::int64_t rows = block.row_end - block.row_begin;
  const std::int64_t panels = block.panel_end - block.panel_begin;
  plan.steps = steps_of(args.k);
  // One strip passes over B once: nothing is used again that blocks of K would keep near.
  plan.k_blocks = rows <= kStripRows || plan.steps <= kStepsWhole ? 1 : ceil_div(plan.steps, kStepsMost);
  const std::int64_t rows_fit = kPackedABytes / (plan.steps * 64) / kStripRows * kStripRows;
  plan.row_block = ceil_div(equal_pieces(rows, at_most(at_least(rows_fit, kStripRows), kRowsMost)), kStripRows) * kStripRows;
  std::int64_t most = kChunkBytes / (ceil_div(plan.steps, plan.k_blocks) * kStepBytes);
  if (plan.k_blocks > 1) most = at_most(most, kSumsBytes / (plan.row_block / kStripRows * kBlockBytes));
  plan.chunk = equal_pieces(panels, at_most(at_least(most, 2), kPanelsMost));
  if (plan.k_blocks > 1) plan.sums_bytes = plan.chunk * (plan.row_block / kStripRows) * kBlockBytes;
  plan.a_bytes = plan.row_block / 16 * plan.steps * kTileBytes;
  plan.bias_bytes = panels * kPanelColumns * 4;
  return plan;
}

TileConfig config_for(std::int64_t rows) {
  TileConfig config{};
  config.palette = 1;
  for (int tile = 0; tile < 8; ++tile) {
    config.bytes_per_row[tile] = 64;
    config.rows[tile] = tile < 5 ? static_cast<std::uint8_t>(rows) : 16;  // 0-3: C, 4: A, 5: the lower A or B, 6-7: B
  }
  return config;
}

inline __attribute__((always_inline)) void prefetch_step(const char* b) {
  for (std::int64_t line = 0; line < kStepBytes; line += 64) _mm_prefetch(b + kPrefetchBytes + line, _MM_HINT_T0);
}

/// 32 rows x 32 columns over `steps` steps of K. a0 and a1 are the tiles of the upper and lower 16 rows; `pending` is written
/// meanwhile. kFirst: B was not used before, so it is fetched ahead. The order leaves each load of B, which comes from L2, a whole
/// product of slack: a tile register behaves as if it were not renamed.
template <bool kFirst>
void multiply_pair(const char* a0, const char* a1, const char* b, std::int64_t steps, const Quad& from, const Quad& to, Pending pending) {
  const std::int64_t rows = ceil_div(pending.rows, steps);
  tile_load<0>(from.at, from.line);
  tile_load<1>(from.at + from.right, from.line);
  tile_load<2>(from.at + from.down, from.line);
  tile_load<3>(from.at + from.down + from.right, from.line);
  for (std::int64_t s = 0; s < steps; ++s) {
    if (kFirst) prefetch_step(b + s * kStepBytes);
    tile_load<4>(a0 + s * kTileBytes, 64);
    tile_stream<6>(b + s * kStepBytes, 64);
    tile_multiply<0, 4, 6>();
    tile_load<5>(a1 + s * kTileBytes, 64);
    tile_multiply<2, 5, 6>();
    tile_stream<7>(b + s * kStepBytes + kTileBytes, 64);
    tile_multiply<1, 4, 7>();
    tile_multiply<3, 5, 7>();
    drain(pending, rows);
  }
  tile_store<0>(to.at, to.line);
  tile_store<1>(to.at + to.right, to.line);
  tile_store<2>(to.at + to.down, to.line);
  tile_store<3>(to.at + to.down + to.right, to.line);
}

/// Up to 16 rows x 32 columns.
void multiply_single(const char* a, const char* b, std::int64_t steps, const Quad& from, const Quad& to, Pending pending) {
  const std::int64_t rows = ceil_div(pending.rows, steps);
  tile_load<0>(from.at, from.line);
  tile_load<1>(from.at + from.right, from.line);
  for (std::int64_t s = 0; s < steps; ++s) {
    prefetch_step(b + s * kStepBytes);
    tile_load<4>(a + s * kTileBytes, 64);
    tile_load<6>(b + s * kStepBytes, 64);
    tile_multiply<0, 4, 6>();
    tile_load<7>(b + s * kStepBytes + kTileBytes, 64);
    tile_multiply<1, 4, 7>();
    drain(pending, rows);
  }
  tile_store<0>(to.at, to.line);
  tile_store<1>(to.at + to.right, to.line);
}

/// Up to 16 rows x 64 columns, for calls that have no more rows: four sums in flight hide the latency of a product.
void multiply_wide(const char* a, const char* b0, const char* b1, std::int64_t steps, const float* bias, const Quad& left_to,
                   const Quad& right_to) {
  tile_load<0>(bias, 0);
  tile_load<1>(bias + 16, 0);
  tile_load<2>(bias + 32, 0);
  tile_load<3>(bias + 48, 0);
  for (std::int64_t s = 0; s < steps; ++s) {
    const char* left = b0 + s * kStepBytes;
    const char* right = b1 + s * kStepBytes;
    prefetch_step(left);
    prefetch_step(right);
    tile_load<4>(a + s * kTileBytes, 64);
    tile_load<6>(left, 64);
    tile_multiply<0, 4, 6>();
    tile_load<7>(left + kTileBytes, 64);
    tile_multiply<1, 4, 7>();
    tile_load<5>(right, 64);
    tile_multiply<2, 4, 5>();
    tile_load<6>(right + kTileBytes, 64);
    tile_multiply<3, 4, 6>();
  }
  tile_store<0>(left_to.at, left_to.line);
  tile_store<1>(left_to.at + left_to.right, left_to.line);
  tile_store<2>(right_to.at, right_to.line);
  tile_store<3>(right_to.at + right_to.right, right_to.line);
}

/// One worker's run: what all loops share.
struct Run {
  const LinearArgs& args;
  const LinearBlock& block;
  Plan plan;
  char* a;
  char* sums;
  char* stage;  // two blocks, used in turn
  float* bias;
  std::int64_t turn = 0;
  Pending pending{};

  [[nodiscard]] const char* panel(std::int64_t index) const {
    return static_cast<const char*>(args.packed_b) + index * plan.steps * kStepBytes;
  }
  [[nodiscard]] float* bias_of(std::int64_t panel_index) const { return bias + (panel_index - block.panel_begin) * kPanelColumns; }
  [[nodiscard]] Quad next_stage() const { return in_rows(stage + turn * kBlockBytes, 128); }

  /// True when tiles can be stored into C as they are.
  [[nodiscard]] bool stores_whole_tiles(std::int64_t rows, std::int64_t panel_index) const {
    return args.c_dtype == DType::kF32 && rows % 16 == 0 && (panel_index + 1) * kPanelColumns <= args.n;
  }
  [[nodiscard]] Quad in_c(std::int64_t row, std::int64_t panel_index) const {
    return in_rows(static_cast<char*>(args.c) + (row * args.ldc + panel_index * kPanelColumns) * 4, args.ldc * 4);
  }

  /// What next_stage() holds is to be written to C from (row, panel) on. The block before it has been written.
  void queue(std::int64_t row, std::int64_t rows, std::int64_t panel_index) {
    const std::int64_t element = args.c_dtype == DType::kF32 ? 4 : 2;
    const std::int64_t column = panel_index * kPanelColumns;
    char* c = static_cast<char*>(args.c) + (row * args.ldc + column) * element;
    pending = {next_stage().at, c, args.ldc * element, rows, mask32(args.n - column), args.c_dtype};
    turn ^= 1;
  }
};

/// All columns of a call of at most 16 rows.
void run_few_rows(Run& run, std::int64_t rows) {
  const std::int64_t steps = run.plan.steps;
  std::int64_t panel = run.block.panel_begin;
  for (; panel + 2 <= run.block.panel_end; panel += 2) {
    const Quad left = in_rows(run.stage, 128);
    const Quad right = in_rows(run.stage + kBlockBytes, 128);
    multiply_wide(run.a, run.panel(panel), run.panel(panel + 1), steps, run.bias_of(panel), left, right);
    for (std::int64_t i = 0; i < 2; ++i) {
      run.queue(run.block.row_begin, rows, panel + i);
      drain(run.pending, rows);
    }
  }
  if (panel < run.block.panel_end) {
    char* bias = reinterpret_cast<char*>(run.bias_of(panel));
    multiply_single(run.a, run.panel(panel), steps, in_bias(bias), run.next_stage(), Pending{});
    run.queue(run.block.row_begin, rows, panel);
  }
}

/// One block of K of a chunk [first, end) of panels, all strips of rows [row, row + rows).
void run_chunk(Run& run, std::int64_t row, std::int64_t rows, std::int64_t first, std::int64_t end, std::int64_t k_block) {
  const Plan& plan = run.plan;
  const std::int64_t step = plan.steps * k_block / plan.k_blocks;
  const std::int64_t steps = plan.steps * (k_block + 1) / plan.k_blocks - step;
  const bool last = k_block + 1 == plan.k_blocks;
  const std::int64_t group_bytes = plan.steps * kTileBytes;  // of A, 16 rows
  char* sums = run.sums;
  for (std::int64_t r = 0; r < rows; r += kStripRows) {
    const std::int64_t here = at_most(rows - r, kStripRows);
    const char* a = run.a + r / 16 * group_bytes + step * kTileBytes;
    for (std::int64_t panel = first; panel < end; ++panel, sums += kBlockBytes) {
      const char* b = run.panel(panel) + step * kStepBytes;
      const Quad from = k_block == 0 ? in_bias(reinterpret_cast<char*>(run.bias_of(panel))) : in_rows(sums, 128);
      const bool direct = last && run.stores_whole_tiles(here, panel);
      const Quad to = direct ? run.in_c(row + r, panel) : last ? run.next_stage() : in_rows(sums, 128);
      if (here <= 16) {
        multiply_single(a, b, steps, from, to, run.pending);
      } else if (r == 0) {
        multiply_pair<true>(a, a + group_bytes, b, steps, from, to, run.pending);
      } else {
        multiply_pair<false>(a, a + group_bytes, b, steps, from, to, run.pending);
      }
      run.pending.rows = 0;
      if (last && !direct) run.queue(row + r, here, panel);
    }
  }
}

}  // namespace

std::size_t linear_scratch_bytes(const LinearArgs& args, const LinearBlock& block) {
  const Plan plan = plan_of(args, block);
  return static_cast<std::size_t>(plan.a_bytes + plan.sums_bytes + 2 * kBlockBytes + plan.bias_bytes);
}

void linear(const LinearArgs& args, const LinearBlock& block, void* scratch) {
  const Plan plan = plan_of(args, block);
  char* a = static_cast<char*>(scratch);
  char* sums = a + plan.a_bytes;
  char* stage = sums + plan.sums_bytes;
  Run run{args, block, plan, a, sums, stage, reinterpret_cast<float*>(stage + 2 * kBlockBytes)};
  for (std::int64_t panel = block.panel_begin; panel < block.panel_end; ++panel) load_bias(args, panel, run.bias_of(panel));
  const std::int64_t all_rows = block.row_end - block.row_begin;
  tile_configure(config_for(at_most(all_rows, 16)));
  for (std::int64_t row = block.row_begin; row < block.row_end; row += plan.row_block) {
    const std::int64_t rows = at_most(block.row_end - row, plan.row_block);
    // Tiles of a call below 16 rows are configured that short; any other call multiplies whole tiles.
    pack_rows(args, row, rows, all_rows < 16 ? rows : ceil_div(rows, 16) * 16, run.a);
    if (all_rows <= 16) {
      run_few_rows(run, rows);
      break;
    }
    for (std::int64_t first = block.panel_begin; first < block.panel_end; first += plan.chunk) {
      const std::int64_t end = at_most(first + plan.chunk, block.panel_end);
      for (std::int64_t k_block = 0; k_block < plan.k_blocks; ++k_block) run_chunk(run, row, rows, first, end, k_block);
    }
  }
  drain(run.pending, run.pending.rows);
  tile_release();
}

}  // namespace ipexrun::kernels::amx
