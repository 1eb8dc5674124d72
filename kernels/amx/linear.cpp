// linear on AMX: 32 x 32 of C in four tiles, two tiles of A and two of B beside them.
//
// Loops, outermost first: blocks of rows (their A, converted to bf16 once, stays in L2), chunks of panels, blocks of K (one panel's
// part of B stays in L1), panels, pairs of 16 rows. Between blocks of K the sums wait in fp32 in L2. The bias is what the first
// block of K starts from. The last block of K leaves its tiles in C itself when that is fp32 and whole, else in a stage whose rows
// are converted and stored between the products of the next 32 x 32.
#include "kernels/amx/linear.h"

#include <immintrin.h>

#include "kernels/amx/rows.h"
#include "kernels/amx/tile.h"
#include "kernels/packed.h"

namespace ipexrun::kernels::amx {
namespace {

constexpr std::int64_t kTileBytes = 1024;
constexpr std::int64_t kBlockBytes = 4 * kTileBytes;  // a 32 x 32 block of C in fp32
constexpr std::int64_t kStepsL1 = 16;                 // 512 rows of K: 32 KiB of a panel
constexpr std::int64_t kPackedABytes = 1 << 20;       // A of a row block, about half of an L2
constexpr std::int64_t kSumsBytes = 384 << 10;        // fp32 sums of a chunk of panels
constexpr std::int64_t kRowsMost = 256;
constexpr std::int64_t kPrefetchBytes = 4096;  // of B, ahead of the products, when few rows leave memory the limit

/// Four tiles of fp32: where tile (i, j) of a 32 x 32 block lies, and how far its lines are apart. All in bytes.
struct Quad {
  char* at;
  std::int64_t line;
  std::int64_t down;
  std::int64_t right;
};

constexpr Quad in_tiles(char* at) { return {at, 64, 2 * kTileBytes, kTileBytes}; }

struct Plan {
  std::int64_t steps;  // of 32 rows of K
  std::int64_t k_blocks;
  std::int64_t row_block;  // rows, a multiple of 32 unless it is all of them
  std::int64_t chunk;      // panels between two rounds over K
  std::int64_t a_bytes;
  std::int64_t sums_bytes;
  std::int64_t bias_bytes;
};

Plan plan_of(const LinearArgs& args, const LinearBlock& block) {
  Plan plan{};
  const std::int64_t rows = block.row_end - block.row_begin;
  const std::int64_t panels = block.panel_end - block.panel_begin;
  plan.steps = steps_of(args.k);
  plan.k_blocks = rows <= 32 ? 1 : ceil_div(plan.steps, kStepsL1);
  std::int64_t most = kPackedABytes / (plan.steps * 64) / 32 * 32;
  most = most < 32 ? 32 : most > kRowsMost ? kRowsMost : most;
  // Equal blocks: 260 rows are 160 + 100, not 256 + 4.
  plan.row_block = ceil_div(ceil_div(rows, ceil_div(rows, most)), 32) * 32;
  plan.chunk = panels;
  if (plan.k_blocks > 1) {
    const std::int64_t fit = kSumsBytes / (plan.row_block / 32 * kBlockBytes);
    if (fit < plan.chunk) plan.chunk = fit < 1 ? 1 : fit;
    plan.sums_bytes = plan.chunk * (plan.row_block / 32) * kBlockBytes;
  }
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

/// 32 rows x 32 columns over `steps` steps of K. a0 and a1 are the tiles of the upper and lower 16 rows.
inline void multiply_pair(const char* a0, const char* a1, const char* b, std::int64_t steps, const Quad& from, const Quad& to,
                          Pending& pending) {
  tile_load<0>(from.at, from.line);
  tile_load<1>(from.at + from.right, from.line);
  tile_load<2>(from.at + from.down, from.line);
  tile_load<3>(from.at + from.down + from.right, from.line);
  const std::int64_t rows_each = ceil_div(pending.rows - pending.next, steps);
  for (std::int64_t s = 0; s < steps; ++s) {
    tile_load<6>(b + s * kStepBytes, 64);
    tile_stream<4>(a0 + s * kTileBytes, 64);
    tile_multiply<0, 4, 6>();
    tile_load<7>(b + s * kStepBytes + kTileBytes, 64);
    tile_multiply<1, 4, 7>();
    tile_stream<5>(a1 + s * kTileBytes, 64);
    tile_multiply<2, 5, 6>();
    tile_multiply<3, 5, 7>();
    drain(pending, rows_each);
  }
  tile_store<0>(to.at, to.line);
  tile_store<1>(to.at + to.right, to.line);
  tile_store<2>(to.at + to.down, to.line);
  tile_store<3>(to.at + to.down + to.right, to.line);
}

/// Up to 16 rows x 32 columns.
inline void multiply_single(const char* a, const char* b, std::int64_t steps, const Quad& from, const Quad& to, Pending& pending) {
  tile_load<0>(from.at, from.line);
  tile_load<1>(from.at + from.right, from.line);
  const std::int64_t rows_each = ceil_div(pending.rows - pending.next, steps);
  for (std::int64_t s = 0; s < steps; ++s) {
    tile_load<4>(a + s * kTileBytes, 64);
    tile_load<6>(b + s * kStepBytes, 64);
    tile_multiply<0, 4, 6>();
    tile_load<7>(b + s * kStepBytes + kTileBytes, 64);
    tile_multiply<1, 4, 7>();
    drain(pending, rows_each);
  }
  tile_store<0>(to.at, to.line);
  tile_store<1>(to.at + to.right, to.line);
}

/// Up to 16 rows x 64 columns, for calls that have no more rows: four sums in flight hide the latency of a product, and B, read
/// once, is fetched ahead.
inline void multiply_wide(const char* a, const char* b0, const char* b1, std::int64_t steps, const float* bias, char* to,
                          Pending& pending) {
  tile_load<0>(bias, 0);
  tile_load<1>(bias + 16, 0);
  tile_load<2>(bias + 32, 0);
  tile_load<3>(bias + 48, 0);
  const std::int64_t rows_each = ceil_div(pending.rows - pending.next, steps);
  for (std::int64_t s = 0; s < steps; ++s) {
    const char* left = b0 + s * kStepBytes;
    const char* right = b1 + s * kStepBytes;
    for (std::int64_t line = 0; line < kStepBytes; line += 64) {
      _mm_prefetch(left + kPrefetchBytes + line, _MM_HINT_T0);
      _mm_prefetch(right + kPrefetchBytes + line, _MM_HINT_T0);
    }
    tile_load<4>(a + s * kTileBytes, 64);
    tile_load<6>(left, 64);
    tile_multiply<0, 4, 6>();
    tile_load<7>(left + kTileBytes, 64);
    tile_multiply<1, 4, 7>();
    tile_load<5>(right, 64);
    tile_multiply<2, 4, 5>();
    tile_load<6>(right + kTileBytes, 64);
    tile_multiply<3, 4, 6>();
    drain(pending, rows_each);
  }
  tile_store<0>(to, 64);
  tile_store<1>(to + kTileBytes, 64);
  tile_store<2>(to + 2 * kTileBytes, 64);
  tile_store<3>(to + 3 * kTileBytes, 64);
}

/// One worker's run: the pointers that all loops share.
struct Run {
  const LinearArgs& args;
  const LinearBlock& block;
  Plan plan;
  char* a;
  char* sums;
  float* bias;
  char* stage;  // two 32 x 32 blocks, used in turn
  int turn = 0;
  Pending pending{};

  const char* panel(std::int64_t index) const { return static_cast<const char*>(args.packed_b) + index * plan.steps * kStepBytes; }

  char* c_at(std::int64_t row, std::int64_t column) const {
    return static_cast<char*>(args.c) + (row * args.ldc + column) * (args.c_dtype == DType::kF32 ? 4 : 2);
  }

  /// Queues a staged block for drain(); the one before it is finished first.
  void queue(const char* tiles, std::int64_t row, std::int64_t rows, std::int64_t column) {
    drain(pending, kRowsMost);
    pending = {tiles, c_at(row, column), args.ldc * (args.c_dtype == DType::kF32 ? 4 : 2), 0, rows, mask32(args.n - column), args.c_dtype};
    turn ^= 1;
  }

  char* next_stage() const { return stage + turn * kBlockBytes; }
};

/// All columns of a call of at most 16 rows.
void run_few_rows(Run& run, std::int64_t rows) {
  const std::int64_t steps = run.plan.steps;
  std::int64_t panel = run.block.panel_begin;
  for (; panel + 2 <= run.block.panel_end; panel += 2) {
    char* tiles = run.next_stage();
    multiply_wide(run.a, run.panel(panel), run.panel(panel + 1), steps, run.bias + (panel - run.block.panel_begin) * kPanelColumns, tiles,
                  run.pending);
    run.queue(tiles, run.block.row_begin, rows, panel * kPanelColumns);
    drain(run.pending, rows);
    run.pending = {tiles + 2 * kTileBytes,
                   run.c_at(run.block.row_begin, (panel + 1) * kPanelColumns),
                   run.pending.stride_bytes,
                   0,
                   rows,
                   mask32(run.args.n - (panel + 1) * kPanelColumns),
                   run.args.c_dtype};
  }
  if (panel < run.block.panel_end) {
    char* tiles = run.next_stage();
    char* bias = reinterpret_cast<char*>(run.bias + (panel - run.block.panel_begin) * kPanelColumns);
    multiply_single(run.a, run.panel(panel), steps, Quad{bias, 0, 0, 64}, in_tiles(tiles), run.pending);
    run.queue(tiles, run.block.row_begin, rows, panel * kPanelColumns);
  }
}

/// One panel, one block of K, all pairs of rows of a row block.
void run_panel(Run& run, std::int64_t row, std::int64_t rows, std::int64_t panel, std::int64_t first_in_chunk, std::int64_t k_block) {
  const Plan& plan = run.plan;
  const std::int64_t step = plan.steps * k_block / plan.k_blocks;
  const std::int64_t steps = plan.steps * (k_block + 1) / plan.k_blocks - step;
  const bool first = k_block == 0;
  const bool last = k_block + 1 == plan.k_blocks;
  const std::int64_t column = panel * kPanelColumns;
  const std::int64_t group_bytes = plan.steps * kTileBytes;  // of A, 16 rows
  const char* b = run.panel(panel) + step * kStepBytes;
  char* bias = reinterpret_cast<char*>(run.bias + (panel - run.block.panel_begin) * kPanelColumns);
  char* sums = run.sums + (panel - first_in_chunk) * (plan.row_block / 32) * kBlockBytes;
  const bool whole_columns = run.args.c_dtype == DType::kF32 && column + kPanelColumns <= run.args.n;
  for (std::int64_t r = 0; r < rows; r += 32, sums += kBlockBytes) {
    const std::int64_t here = rows - r < 32 ? rows - r : 32;
    const char* a = run.a + r / 16 * group_bytes + step * kTileBytes;
    const Quad from = first ? Quad{bias, 0, 0, 64} : in_tiles(sums);
    const bool direct = whole_columns && (here == 32 || here == 16);
    const std::int64_t line = run.args.ldc * 4;
    char* tiles = run.next_stage();
    const Quad to = !last ? in_tiles(sums) : direct ? Quad{run.c_at(row + r, column), line, 16 * line, 64} : in_tiles(tiles);
    if (here > 16) {
      multiply_pair(a, a + group_bytes, b, steps, from, to, run.pending);
    } else {
      multiply_single(a, b, steps, from, to, run.pending);
    }
    if (last && !direct) run.queue(tiles, row + r, here, column);
  }
}

}  // namespace

bool linear_suits(const LinearArgs&) { return true; }

std::size_t linear_scratch_bytes(const LinearArgs& args, const LinearBlock& block) {
  const Plan plan = plan_of(args, block);
  return static_cast<std::size_t>(plan.a_bytes + plan.sums_bytes + plan.bias_bytes + 2 * kBlockBytes);
}

void linear(const LinearArgs& args, const LinearBlock& block, void* scratch) {
  const Plan plan = plan_of(args, block);
  char* a = static_cast<char*>(scratch);
  char* sums = a + plan.a_bytes;
  char* stage = sums + plan.sums_bytes;
  Run run{args, block, plan, a, sums, reinterpret_cast<float*>(stage + 2 * kBlockBytes), stage};
  for (std::int64_t panel = block.panel_begin; panel < block.panel_end; ++panel) {
    load_bias(args, panel, run.bias + (panel - block.panel_begin) * kPanelColumns);
  }
  const std::int64_t all_rows = block.row_end - block.row_begin;
  tile_configure(config_for(all_rows < 16 ? all_rows : 16));
  for (std::int64_t row = block.row_begin; row < block.row_end; row += plan.row_block) {
    const std::int64_t rows = block.row_end - row < plan.row_block ? block.row_end - row : plan.row_block;
    // Tiles of a call below 16 rows are configured that short; any other call multiplies whole tiles.
    pack_rows(args, row, rows, all_rows < 16 ? rows : ceil_div(rows, 16) * 16, run.a);
    if (all_rows <= 16) {
      run_few_rows(run, rows);
      break;
    }
    for (std::int64_t chunk = block.panel_begin; chunk < block.panel_end; chunk += plan.chunk) {
      const std::int64_t end = chunk + plan.chunk < block.panel_end ? chunk + plan.chunk : block.panel_end;
      for (std::int64_t k_block = 0; k_block < plan.k_blocks; ++k_block) {
        for (std::int64_t panel = chunk; panel < end; ++panel) run_panel(run, row, rows, panel, chunk, k_block);
      }
    }
  }
  drain(run.pending, kRowsMost);
  tile_release();
}

}  // namespace ipexrun::kernels::amx
