// Products of a short K on AMX, for batched: 32 x 32 of C, one half of the columns after the other, for the whole of K at once.
//
// amx/blocks.h overlaps what surrounds the products with a long loop over K; here a block has few steps, so the rows of the block before it
// are written to C behind its products, while the stores of its own sums wait for them. Strips of 32 rows, outermost, walk over all panels
// of B, which stay in L2. A is brought into tiles as it lies where that is possible.
#include "kernels/amx/batched.h"

#include <immintrin.h>

#include "kernels/amx/rows.h"
#include "kernels/amx/tile.h"
#include "kernels/packed.h"
#include "kernels/simd/batched.h"

namespace ipexrun::kernels::amx {
namespace {

constexpr std::int64_t kTileBytes = 1024;
constexpr std::int64_t kStripRows = 32;
constexpr std::int64_t kLine = kPanelColumns * 4;  // of a block of sums
constexpr std::int64_t kBlockBytes = kStripRows * kLine;

/// 32 rows of A as tiles of 16: how far their lines, the next step and the lower rows are apart, in bytes. What is left of K behind `steps`
/// whole steps is in tiles of its own, the lower one behind the upper.
struct Strip {
  const char* at;
  std::int64_t line;
  std::int64_t step;
  std::int64_t down;
  std::int64_t steps;
  const char* rest;  ///< null = none
};

/// A finished block and where it goes.
struct Finished {
  const float* sums = nullptr;
  char* out = nullptr;
  std::int64_t rows = 0;
  std::int64_t column = 0;
};

/// What becomes of finished sums: bf16 as they are; bf16, scaled and with rows of bf16 added; anything else, by the general way.
enum class To { kRounded, kScaled, kOther };

template <To kTo>
[[gnu::always_inline]] inline void write(const BatchedTiles& args, const Finished& block, std::int64_t row) {
  if (block.rows == 0) return;
  const BatchedPlace& to = args.to;
  if constexpr (kTo == To::kOther) {
    const std::int64_t valid = args.columns - block.column < kPanelColumns ? args.columns - block.column : kPanelColumns;
    BatchedPlace here = to;
    here.out += (row * to.ldo + block.column) * bytes_of(to.out_dtype);
    if (to.c != nullptr) here.c += (row * to.c_row + block.column * to.c_column) * bytes_of(to.c_dtype);
    avx512::batched_finish(block.sums, kPanelColumns, block.rows, valid, here);
  } else {
    const __mmask32 columns = mask32(args.columns - block.column);
    const float* sums = block.sums;
    char* out = block.out;
    const __m512 alpha = _mm512_set1_ps(to.alpha);
    const __m512 beta = _mm512_set1_ps(to.beta);
    const char* c = to.c == nullptr ? nullptr : to.c + (row * to.c_row + block.column) * 2;
    for (std::int64_t r = 0; r < block.rows; ++r, sums += kPanelColumns, out += to.ldo * 2) {
      __m512 left = _mm512_load_ps(sums);
      __m512 right = _mm512_load_ps(sums + 16);
      if constexpr (kTo == To::kScaled) {
        left = _mm512_mul_ps(alpha, left);
        right = _mm512_mul_ps(alpha, right);
        if (c != nullptr) {
          const __m512i both = _mm512_maskz_loadu_epi16(columns, c);
          c += to.c_row * 2;
          left = _mm512_fmadd_ps(beta, widened(_mm512_castsi512_si256(both)), left);
          right = _mm512_fmadd_ps(beta, widened(_mm512_extracti64x4_epi64(both, 1)), right);
        }
      }
      _mm512_mask_storeu_epi16(out, columns, (__m512i)_mm512_cvtne2ps_pbh(right, left));
    }
  }
}

template <bool kLower>
[[gnu::always_inline]] inline void multiply_step(const char* a, std::int64_t line, std::int64_t down, const char* b) {
  tile_load<6>(b, 64);
  tile_load<4>(a, line);
  tile_multiply<0, 4, 6>();
  if constexpr (kLower) tile_load<4>(a + down, line);
  if constexpr (kLower) tile_multiply<1, 4, 6>();
}

/// To rows of `to_line` bytes, one half of the columns after the other in few registers (tile.h).
template <bool kLower>
[[gnu::always_inline]] inline void multiply(const Strip& a, const char* b, char* to, std::int64_t to_line) {
  for (std::int64_t half = 0; half < 2; ++half, to += 64, b += kTileBytes) {
    tile_zero<0>();
    if constexpr (kLower) tile_zero<1>();
    const char* at = a.at;
    const char* columns = b;
    for (std::int64_t s = 0; s < a.steps; ++s, at += a.step, columns += kStepBytes) multiply_step<kLower>(at, a.line, a.down, columns);
    if (a.rest != nullptr) multiply_step<kLower>(a.rest, 64, kTileBytes, columns);
    tile_store<0>(to, to_line);
    if constexpr (kLower) tile_store<1>(to + 16 * to_line, to_line);
  }
}

/// One strip over all panels; what the last of them leaves is written at the end.
template <To kTo, bool kLower>
void run_strip(const BatchedTiles& args, const Strip& a, std::int64_t row, std::int64_t rows) {
  const std::int64_t steps = steps_of(args.k);
  const char* b = args.b;
  char* stage = args.scratch;
  const bool direct = kTo == To::kOther && args.to.out_dtype == DType::kF32 && args.to.c == nullptr && args.to.alpha == 1 && rows % 16 == 0;
  Finished before;
  char* out = args.to.out + row * args.to.ldo * bytes_of(args.to.out_dtype);
  for (std::int64_t column = 0; column < args.columns; column += kPanelColumns, b += steps * kStepBytes) {
    const bool whole = direct && column + kPanelColumns <= args.columns;
    multiply<kLower>(a, b, whole ? out + column * 4 : stage, whole ? args.to.ldo * 4 : kLine);
    write<kTo>(args, before, row);
    before.rows = 0;
    if (whole) continue;
    before = {reinterpret_cast<const float*>(stage), out + column * 2, rows, column};
    stage = stage == args.scratch ? args.scratch + kBlockBytes : args.scratch;
  }
  write<kTo>(args, before, row);
}

struct Run {
  void (*both)(const BatchedTiles& args, const Strip& a, std::int64_t row, std::int64_t rows);
  void (*upper)(const BatchedTiles& args, const Strip& a, std::int64_t row, std::int64_t rows);
};
constexpr Run kRuns[] = {{run_strip<To::kRounded, true>, run_strip<To::kRounded, false>},
                         {run_strip<To::kScaled, true>, run_strip<To::kScaled, false>},
                         {run_strip<To::kOther, true>, run_strip<To::kOther, false>}};

}  // namespace

std::int64_t batched_tiles_bytes(std::int64_t k) { return 2 * kBlockBytes + 2 * steps_of(k) * kTileBytes; }

void batched_tiles_begin() { tile_configure(whole_tiles()); }

void batched_tiles_end() { tile_release(); }

void batched_tiles(const BatchedTiles& args) {
  const std::int64_t steps = steps_of(args.k);
  const bool scaled = args.to.c != nullptr || args.to.alpha != 1;
  const bool other =
      args.to.out_dtype != DType::kBf16 || (args.to.c != nullptr && (args.to.c_dtype != DType::kBf16 || args.to.c_column != 1));
  const Run run = kRuns[other ? 2 : scaled ? 1 : 0];
  const std::int64_t element = bytes_of(args.a_dtype);
  LinearArgs source;
  source.a = args.a;
  source.a_dtype = args.a_dtype;
  source.lda = args.lda;
  source.k = args.k;
  for (std::int64_t row = 0; row < args.rows; row += kStripRows) {
    const std::int64_t rows = args.rows - row < kStripRows ? args.rows - row : kStripRows;
    const char* from = static_cast<const char*>(args.a) + row * args.lda * element;
    char* tiles = args.scratch + 2 * kBlockBytes;
    const std::int64_t padded = rows > 16 ? 32 : 16;
    Strip a{from, args.lda * 2, 64, 16 * args.lda * 2, args.k / kStepK, nullptr};
    if (element != 2 || rows % 16 != 0) {
      pack_rows(source, row, rows, padded, 0, steps, tiles);
      a = {tiles, 64, kTileBytes, steps * kTileBytes, steps, nullptr};
    } else if (args.k % kStepK != 0) {
      LinearArgs rest = source;
      rest.a = static_cast<const char*>(args.a) + a.steps * 64;
      rest.k = args.k % kStepK;
      pack_rows(rest, row, rows, padded, 0, 1, tiles);
      a.rest = tiles;
    }
    (rows > 16 ? run.both : run.upper)(args, a, row, rows);
  }
}

}  // namespace ipexrun::kernels::amx
