// linear_int4 on AMX, for up to some hundred rows: a group of a block of 64 columns becomes tiles of the bf16 numbers 128 + q, as in
// simd/linear_int4.cpp; the products of the group are scaled and corrected once. W itself is never formed, so nothing is rounded, and
// 64 weights take nine vector instructions whatever the number of rows.
#include "kernels/amx/linear_int4.h"

#include <immintrin.h>

#include "kernels/amx/rows.h"
#include "kernels/amx/tile.h"
#include "kernels/packed.h"
#include "kernels/simd/int4.h"

namespace ipexrun::kernels::amx {
namespace {

constexpr std::int64_t kTileBytes = 1024;
constexpr std::int64_t kTileRows = 16;
constexpr int kTilesOfBlock = 4;
constexpr int kStreams = 4;
constexpr std::int64_t kStepOfBlockBytes = kTilesOfBlock * kTileBytes;  // 32 rows of K, 64 columns

std::int64_t row_blocks_of(const LinearInt4Args& args) { return ceil_div(args.m, kTileRows); }

TileConfig config_for(std::int64_t rows) {
  TileConfig config{};
  config.palette = 1;
  for (int tile = 0; tile < 8; ++tile) {
    config.bytes_per_row[tile] = 64;
    config.rows[tile] = tile < 5 ? static_cast<std::uint8_t>(rows) : 16;  // 0-3: C, 4: A, 5-7: B
  }
  return config;
}

/// A quarter of the numbers of one step of K of a block: four lines of each of four tiles of 16 columns.
[[gnu::always_inline]] inline void unpack_quarter(const std::uint8_t* lines, const Int4Spread& spread, int quarter, char* to) {
  constexpr int kPairs = 4;
#pragma GCC unroll 4
  for (int i = quarter * kPairs; i < (quarter + 1) * kPairs; ++i) {
    const std::uint8_t* line = lines + i * 2 * kInt4LineBytes;
    __builtin_prefetch(line + kInt4PrefetchBytes);
    __m512i numbers[kTilesOfBlock];
    int4_numbers_of(line, spread, numbers);
#pragma GCC unroll 4
    for (int t = 0; t < kTilesOfBlock; ++t) _mm512_store_si512(to + t * kTileBytes + i * 64, numbers[t]);
  }
}

/// Of one group, steps one after the other.
void unpack_group(const std::uint8_t* lines, std::int64_t group, char* to) {
  const Int4Spread spread = int4_spread();
  for (std::int64_t i = 0; i < group; i += kStepK) {
    for (int quarter = 0; quarter < 4; ++quarter)
      unpack_quarter(lines + i * kInt4LineBytes, spread, quarter, to + i / kStepK * kStepOfBlockBytes);
  }
}

[[gnu::always_inline]] inline void clear_sums() {
  tile_zero<0>();
  tile_zero<1>();
  tile_zero<2>();
  tile_zero<3>();
}

[[gnu::always_inline]] inline void multiply_step(const char* a, const char* b) {
  tile_load<4>(a, 64);
  tile_load<5>(b, 64);
  tile_multiply<0, 4, 5>();
  tile_load<6>(b + kTileBytes, 64);
  tile_multiply<1, 4, 6>();
  tile_load<7>(b + 2 * kTileBytes, 64);
  tile_multiply<2, 4, 7>();
  tile_load<5>(b + 3 * kTileBytes, 64);
  tile_multiply<3, 4, 5>();
}

[[gnu::always_inline]] inline void store_sums(float* to) {
  tile_store<0>(to, 256);
  tile_store<1>(to + 16, 256);
  tile_store<2>(to + 32, 256);
  tile_store<3>(to + 48, 256);
}

void multiply(const char* a, const char* b, std::int64_t steps, float* to) {
  clear_sums();
  for (std::int64_t s = 0; s < steps; ++s) multiply_step(a + s * kTileBytes, b + s * kStepOfBlockBytes);
  store_sums(to);
}

/// Adds to `total` what the products of group g of a block come to, of `rows` rows whose sums of A are `group` floats apart.
void add_products(const LinearInt4Args& args, std::int64_t block, std::int64_t g, const float* products, const float* sums,
                  std::int64_t rows, float* total) {
  const std::int64_t groups = args.k / args.group;
  __m512 scale[kTilesOfBlock];
  __m512 rest[kTilesOfBlock];
#pragma GCC unroll 4
  for (int t = 0; t < kTilesOfBlock; ++t)
    int4_scales(args.scales_and_zeros + (g * args.n + block * kInt4Columns + t * 16) * 2, &scale[t], &rest[t]);
  for (std::int64_t r = 0; r < rows; ++r, total += kInt4Columns, products += kInt4Columns) {
    const __m512 sum_of_a = _mm512_set1_ps(sums[r * groups + g]);
#pragma GCC unroll 4
    for (int t = 0; t < kTilesOfBlock; ++t) {
      const __m512 before = _mm512_fmadd_ps(rest[t], sum_of_a, _mm512_load_ps(total + t * 16));
      _mm512_store_ps(total + t * 16, _mm512_fmadd_ps(scale[t], _mm512_load_ps(products + t * 16), before));
    }
  }
}

void write_block(const LinearInt4Args& args, std::int64_t block, const float* total) {
  for (std::int64_t row = 0; row < args.m; ++row, total += kInt4Columns) {
    std::uint16_t* to = args.c + row * args.ldc + block * kInt4Columns;
    for (int t = 0; t < kTilesOfBlock; t += 2)
      _mm512_storeu_si512(to + t * 16, (__m512i)_mm512_cvtne2ps_pbh(_mm512_load_ps(total + t * 16 + 16), _mm512_load_ps(total + t * 16)));
  }
}

/// Up to 16 rows of A, steps one after the other, each of as many lines as there are rows: whole tiles would share few sets of the cache.
void pack_few(const LinearInt4Args& args, char* to) {
  for (std::int64_t k = 0; k < args.k; k += kStepK) {
    for (std::int64_t row = 0; row < args.m; ++row, to += 64) _mm512_store_si512(to, _mm512_loadu_si512(args.a + row * args.lda + k));
  }
}

/// A step of K of a group of one of the blocks that are computed together.
struct Step {
  std::int64_t g;
  std::int64_t stream;
  std::int64_t s;
};

/// Up to 16 rows: blocks first, first + apart, ..., so that each is a stream of its own through memory, a group of each in turn. The
/// numbers of a step are unpacked while the step before it is multiplied.
template <int S>
void few_rows(const LinearInt4Args& args, std::int64_t first, std::int64_t apart, const char* a, const float* sums, char* numbers,
              float* products, float* totals) {
  const Int4Spread spread = int4_spread();
  const std::int64_t groups = args.k / args.group;
  const std::int64_t steps = args.group / kStepK;
  const std::int64_t total_floats = args.m * kInt4Columns;
  __builtin_memset(totals, 0, static_cast<std::size_t>(S * total_floats * 4));
  Step before{};
  Step stored{-1, 0, 0};
  const auto add_stored = [&] {
    if (stored.g < 0) return;
    add_products(args, first + stored.stream * apart, stored.g, products, sums, args.m, totals + stored.stream * total_floats);
    stored.g = -1;
  };
  const auto store_if_last = [&] {
    if (before.s + 1 < steps) return;
    store_sums(products);
    stored = before;
  };
  const auto a_of = [&](const Step& step) { return a + (step.g * steps + step.s) * args.m * 64; };
  std::int64_t turn = 0;
  for (std::int64_t g = 0; g < groups; ++g) {
    for (std::int64_t stream = 0; stream < S; ++stream) {
      const std::uint8_t* lines = args.b + ((first + stream * apart) * args.k + g * args.group) * kInt4LineBytes;
      for (std::int64_t s = 0; s < steps; ++s, ++turn, lines += kStepK * kInt4LineBytes) {
        char* to = numbers + turn % 2 * kStepOfBlockBytes;
        const char* from = numbers + (turn + 1) % 2 * kStepOfBlockBytes;
        if (turn == 0) {
          for (int quarter = 0; quarter < 4; ++quarter) unpack_quarter(lines, spread, quarter, to);
        } else {
          unpack_quarter(lines, spread, 0, to);
          add_stored();
          if (before.s == 0) clear_sums();
          // A tile register behaves as if it were not renamed: each is loaded well before its use.
          tile_load<4>(a_of(before), 64);
          tile_load<5>(from, 64);
          tile_load<6>(from + kTileBytes, 64);
          unpack_quarter(lines, spread, 1, to);
          tile_multiply<0, 4, 5>();
          tile_load<7>(from + 2 * kTileBytes, 64);
          unpack_quarter(lines, spread, 2, to);
          tile_multiply<1, 4, 6>();
          tile_load<5>(from + 3 * kTileBytes, 64);
          unpack_quarter(lines, spread, 3, to);
          tile_multiply<2, 4, 7>();
          tile_multiply<3, 4, 5>();
          store_if_last();
        }
        before = {g, stream, s};
      }
    }
  }
  add_stored();
  if (before.s == 0) clear_sums();
  multiply_step(a_of(before), numbers + (turn + 1) % 2 * kStepOfBlockBytes);
  store_if_last();
  add_stored();
  for (std::int64_t stream = 0; stream < S; ++stream) write_block(args, first + stream * apart, totals + stream * total_floats);
}

}  // namespace

std::size_t int4_scratch_bytes(const LinearInt4Args& args) {
  const std::int64_t rows = row_blocks_of(args) * kTileRows;
  const std::int64_t steps = args.group / kStepK < 2 ? 2 : args.group / kStepK;
  const std::int64_t streams = args.m <= kTileRows ? kStreams : 1;
  return static_cast<std::size_t>(rows * args.k * 2 + steps * kStepOfBlockBytes + streams * rows * kInt4Columns * 4 +
                                  kTilesOfBlock * kTileBytes);
}

void int4_blocks(const LinearInt4Args& args, std::int64_t begin, std::int64_t end, const float* sums, void* scratch) {
  const std::int64_t row_blocks = row_blocks_of(args);
  const std::int64_t groups = args.k / args.group;
  const std::int64_t steps = args.group / kStepK < 2 ? 2 : args.group / kStepK;
  char* a = static_cast<char*>(scratch);
  char* numbers = a + row_blocks * kTileRows * args.k * 2;
  auto* products = reinterpret_cast<float*>(numbers + steps * kStepOfBlockBytes);
  float* total = products + kTilesOfBlock * kTileBytes / 4;
  LinearArgs rows;
  rows.a = args.a;
  rows.a_dtype = DType::kBf16;
  rows.lda = args.lda;
  rows.k = args.k;
  tile_configure(config_for(args.m < kTileRows ? args.m : kTileRows));
  if (args.m <= kTileRows) {
    pack_few(args, a);
    const std::int64_t apart = (end - begin) / kStreams;
    for (std::int64_t i = 0; i < apart; ++i) few_rows<kStreams>(args, begin + i, apart, a, sums, numbers, products, total);
    for (std::int64_t block = begin + apart * kStreams; block < end; ++block)
      few_rows<1>(args, block, 1, a, sums, numbers, products, total);
    tile_release();
    return;
  }
  pack_rows(rows, 0, args.m, row_blocks * kTileRows, 0, steps_of(args.k), a);
  for (std::int64_t block = begin; block < end; ++block) {
    const std::uint8_t* lines = args.b + block * args.k * kInt4LineBytes;
    __builtin_memset(total, 0, static_cast<std::size_t>(args.m * kInt4Columns * 4));
    for (std::int64_t g = 0; g < groups; ++g) {
      unpack_group(lines + g * args.group * kInt4LineBytes, args.group, numbers);
      for (std::int64_t rb = 0; rb < row_blocks; ++rb) {
        multiply(a + (rb * args.k / kStepK + g * args.group / kStepK) * kTileBytes, numbers, args.group / kStepK, products);
        const std::int64_t first = rb * kTileRows;
        const std::int64_t here = args.m - first < kTileRows ? args.m - first : kTileRows;
        add_products(args, block, g, products, sums + first * groups, here, total + first * kInt4Columns);
      }
    }
    write_block(args, block, total);
  }
  tile_release();
}

}  // namespace ipexrun::kernels::amx
