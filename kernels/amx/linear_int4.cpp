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

/// The numbers of one group of a block, steps of 32 rows of K one after the other, each of four tiles of 16 columns.
void unpack_group(const std::uint8_t* lines, std::int64_t group, char* to) {
  for (std::int64_t i = 0; i < group; i += 2) {
    const std::uint8_t* line = lines + i * kInt4LineBytes;
    __builtin_prefetch(line + kInt4PrefetchBytes);
    const __m512i left = int4_pairs(line);
    const __m512i right = int4_pairs(line + 16);
    char* at = to + (i / kStepK) * kStepOfBlockBytes + (i % kStepK) / 2 * 64;
    _mm512_store_si512(at, int4_numbers(left));
    _mm512_store_si512(at + kTileBytes, int4_numbers(right));
    _mm512_store_si512(at + 2 * kTileBytes, int4_numbers(_mm512_srli_epi32(left, 4)));
    _mm512_store_si512(at + 3 * kTileBytes, int4_numbers(_mm512_srli_epi32(right, 4)));
  }
}

void multiply(const char* a, const char* b, std::int64_t steps, float* to) {
  tile_zero<0>();
  tile_zero<1>();
  tile_zero<2>();
  tile_zero<3>();
  for (std::int64_t s = 0; s < steps; ++s, a += kTileBytes, b += kStepOfBlockBytes) {
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
  tile_store<0>(to, 256);
  tile_store<1>(to + 16, 256);
  tile_store<2>(to + 32, 256);
  tile_store<3>(to + 48, 256);
}

}  // namespace

std::size_t int4_scratch_bytes(const LinearInt4Args& args) {
  const std::int64_t rows = row_blocks_of(args) * kTileRows;
  return static_cast<std::size_t>(rows * args.k * 2 + args.group / kStepK * kStepOfBlockBytes + rows * kInt4Columns * 4 +
                                  kTilesOfBlock * kTileBytes);
}

void int4_blocks(const LinearInt4Args& args, std::int64_t begin, std::int64_t end, const float* sums, void* scratch) {
  const std::int64_t row_blocks = row_blocks_of(args);
  const std::int64_t groups = args.k / args.group;
  char* a = static_cast<char*>(scratch);
  char* numbers = a + row_blocks * kTileRows * args.k * 2;
  auto* total = reinterpret_cast<float*>(numbers + args.group / kStepK * kStepOfBlockBytes);
  float* products = total + row_blocks * kTileRows * kInt4Columns;
  LinearArgs rows;
  rows.a = args.a;
  rows.a_dtype = DType::kBf16;
  rows.lda = args.lda;
  rows.k = args.k;
  pack_rows(rows, 0, args.m, args.m < kTileRows ? args.m : row_blocks * kTileRows, 0, steps_of(args.k), a);
  tile_configure(config_for(args.m < kTileRows ? args.m : kTileRows));
  for (std::int64_t block = begin; block < end; ++block) {
    const std::uint8_t* lines = args.b + block * args.k * kInt4LineBytes;
    __builtin_memset(total, 0, static_cast<std::size_t>(args.m * kInt4Columns * 4));
    for (std::int64_t g = 0; g < groups; ++g) {
      unpack_group(lines + g * args.group * kInt4LineBytes, args.group, numbers);
      __m512 scale[kTilesOfBlock];
      __m512 rest[kTilesOfBlock];
      for (int t = 0; t < kTilesOfBlock; ++t)
        int4_scales(args.scales_and_zeros + (g * args.n + block * kInt4Columns + t * 16) * 2, &scale[t], &rest[t]);
      for (std::int64_t rb = 0; rb < row_blocks; ++rb) {
        multiply(a + (rb * args.k / kStepK + g * args.group / kStepK) * kTileBytes, numbers, args.group / kStepK, products);
        const std::int64_t first = rb * kTileRows;
        const std::int64_t here = args.m - first < kTileRows ? args.m - first : kTileRows;
        for (std::int64_t r = 0; r < here; ++r) {
          const __m512 sum_of_a = _mm512_set1_ps(sums[(first + r) * groups + g]);
          float* line = total + (first + r) * kInt4Columns;
          for (int t = 0; t < kTilesOfBlock; ++t) {
            const __m512 before = _mm512_fmadd_ps(rest[t], sum_of_a, _mm512_load_ps(line + t * 16));
            _mm512_store_ps(line + t * 16, _mm512_fmadd_ps(scale[t], _mm512_load_ps(products + r * kInt4Columns + t * 16), before));
          }
        }
      }
    }
    for (std::int64_t row = 0; row < args.m; ++row) {
      std::uint16_t* to = args.c + row * args.ldc + block * kInt4Columns;
      const float* line = total + row * kInt4Columns;
      for (int t = 0; t < kTilesOfBlock; t += 2)
        _mm512_storeu_si512(to + t * 16, (__m512i)_mm512_cvtne2ps_pbh(_mm512_load_ps(line + t * 16 + 16), _mm512_load_ps(line + t * 16)));
    }
  }
  tile_release();
}

}  // namespace ipexrun::kernels::amx
