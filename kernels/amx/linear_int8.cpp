// linear_int8 on AMX, for up to 64 rows of bf16: C^T = B * A^T. A row of B, int8 in memory, becomes a line of a tile as it is read, bf16
// holding every int8, so that nothing is transposed but A, once. The numbers of a part of K are converted while the tiles of the part
// before it are multiplied.
//
// An int8 as fp16 has its last bits zero: shifted by three it is a bf16, of the same number times 2^-112, which is four instructions for 32
// of them where the way over fp32 takes six and more. A makes up for 2^100 of that, so that neither it nor a product is a denormal.
//
// The 16 columns of C that are computed together lie a sixteenth of the worker's part apart: each is a stream of its own through memory.
// What 16 such groups leave is 16 adjacent columns for each stream, which are written then.
#include "kernels/amx/linear_int8.h"

#include <immintrin.h>

#include "kernels/amx/tile.h"
#include "kernels/packed.h"
#include "kernels/simd/lanes_avx512.h"

namespace ipexrun::kernels::amx_avx512_fp16 {
namespace {

using namespace amx;  // NOLINT(google-build-using-namespace): tiles

using avx512::Lanes;

constexpr std::int64_t kLanes = 16;
constexpr std::int64_t kTileBytes = 1024;
constexpr std::int64_t kChunk = 2 * kStepK;  // of K, what a cache line holds
constexpr std::int64_t kGroupBytes = 2 * kTileBytes;
constexpr std::int64_t kStagesBytes = 2 * 2 * kGroupBytes;
constexpr std::int64_t kPrefetchBytes = 1024;

__mmask16 mask16(std::int64_t count) { return static_cast<__mmask16>(_bzhi_u32(0xffffu, static_cast<unsigned>(count))); }

constexpr float kSumsBy = 0x1p12f;  ///< what sums of products are still too small by

/// 32 bytes as bf16, times 2^-112.
[[gnu::always_inline]] inline __m512i as_bf16(__m256i bytes) {
  const __m512i halves = (__m512i)_mm512_cvtepi16_ph(_mm512_cvtepi8_epi16(bytes));
  return _mm512_and_si512(_mm512_srai_epi16(halves, 3), _mm512_set1_epi16(static_cast<short>(0x8fff)));
}

/// Two bf16 in each lane, times 2^100.
[[gnu::always_inline]] inline __m512i enlarged(__m512i pairs) {
  const __m512 by = _mm512_set1_ps(0x1p100f);
  const __m512 low = _mm512_mul_ps(_mm512_castsi512_ps(Lanes::shift_left_16(pairs)), by);
  const __m512 high = _mm512_mul_ps(_mm512_castsi512_ps(Lanes::upper_half(pairs)), by);
  return Lanes::halves(Lanes::shift_right_16(_mm512_castps_si512(low)), _mm512_castps_si512(high));
}

/// Which of 32 bf16 are too large for that: 2^26 and more, infinities and NaN.
[[gnu::always_inline]] inline __mmask32 too_large(__m512i pairs) {
  return _mm512_cmpge_epu16_mask(_mm512_and_si512(pairs, _mm512_set1_epi16(0x7fff)), _mm512_set1_epi16((127 + 26) << 7));
}

/// The lowest `count` bits, none where it is negative.
[[gnu::always_inline]] inline __mmask32 part_of(std::int64_t count) {
  return count <= 0 ? 0u : _bzhi_u32(~0u, static_cast<unsigned>(count < 32 ? count : 32));
}

std::int64_t chunks_of(const LinearInt8Args& args) { return ceil_div(args.k, kChunk); }
std::int64_t row_tiles_of(const LinearInt8Args& args) { return ceil_div(args.m, kLanes); }

/// 64 numbers of a row of B as two lines of bf16, a tile apart. Past those of `part` zeros, and their memory is not touched.
template <bool kWhole>
[[gnu::always_inline]] inline void convert(const std::int8_t* from, __mmask64 part, char* to) {
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const auto* at = reinterpret_cast<const __m256i*>(from + i * kStepK);
    const __m256i bytes = kWhole ? _mm256_loadu_si256(at) : _mm256_maskz_loadu_epi8(static_cast<__mmask32>(part >> (i * kStepK)), at);
    _mm512_store_si512(to + i * kTileBytes, as_bf16(bytes));
  }
}

/// The tiles of A^T * 2^100: for each step of 32 of K one for 16 rows, line i holding elements 2i and 2i + 1 of all of them. False where a
/// number of A is too large for that, or none.
bool transpose_a(const LinearInt8Args& args, char* to) {
  const std::int64_t row_tiles = row_tiles_of(args);
  __mmask32 large = 0;
  for (std::int64_t s = 0; s < chunks_of(args) * 2; ++s) {
    const __mmask32 part = part_of(args.k - s * kStepK);
    for (std::int64_t t = 0; t < row_tiles; ++t, to += kTileBytes) {
      __m512i lines[kLanes];
#pragma GCC unroll 16
      for (std::int64_t r = 0; r < kLanes; ++r) {
        const std::int64_t row = t * kLanes + r;
        lines[r] = _mm512_setzero_si512();
        if (row < args.m)
          lines[r] = _mm512_maskz_loadu_epi16(part, static_cast<const std::uint16_t*>(args.a) + row * args.lda + s * kStepK);
      }
#pragma GCC unroll 16
      for (std::int64_t r = 0; r < kLanes; ++r) {
        large |= too_large(lines[r]);
        lines[r] = enlarged(lines[r]);
      }
      Lanes::transpose(lines);
#pragma GCC unroll 16
      for (std::int64_t r = 0; r < kLanes; ++r) _mm512_store_si512(to + r * 64, lines[r]);
    }
  }
  return large == 0;
}

/// Two steps of K: adds to the sums in tiles t (and 2 + t for the second group), A^T at `a`, B at `b`.
template <int T, int G>
[[gnu::always_inline]] inline void multiply(const char* a, const char* b) {
  if constexpr (T == 1 && G == 2) {  // registers enough to load all before: they behave as if they were not renamed
    tile_load<6>(a, 64);
    tile_load<4>(b, 64);
    tile_load<5>(b + kGroupBytes, 64);
    tile_load<7>(a + kTileBytes, 64);
    tile_load<1>(b + kTileBytes, 64);
    tile_load<3>(b + kGroupBytes + kTileBytes, 64);
    tile_multiply<0, 4, 6>();
    tile_multiply<2, 5, 6>();
    tile_multiply<0, 1, 7>();
    tile_multiply<2, 3, 7>();
    return;
  }
  for (int s = 0; s < 2; ++s, a += T * kTileBytes, b += kTileBytes) {
    tile_load<4>(b, 64);
    if constexpr (G == 2) tile_load<5>(b + kGroupBytes, 64);
    tile_load<6>(a, 64);
    tile_multiply<0, 4, 6>();
    if constexpr (G == 2) tile_multiply<2, 5, 6>();
    if constexpr (T > 1) {
      tile_load<7>(a + kTileBytes, 64);
      tile_multiply<1, 4, 7>();
      if constexpr (G == 2) tile_multiply<3, 5, 7>();
    }
    if constexpr (T > 2) {
      tile_load<6>(a + 2 * kTileBytes, 64);
      tile_multiply<2, 4, 6>();
    }
    if constexpr (T > 3) {
      tile_load<7>(a + 3 * kTileBytes, 64);
      tile_multiply<3, 4, 7>();
    }
  }
}

/// G groups of 16 columns: row r of B of group g at rows[g * 16 + r]. Sums of group g to `to` + g * T * 64 bytes, the columns
/// `stride` bytes apart, of each T * 16 rows of C.
template <int T, int G>
void columns_of(const std::int8_t* const* rows, const char* a, std::int64_t k, char* numbers, char* to, std::int64_t stride) {
  tile_zero<0>();
  tile_zero<1>();
  tile_zero<2>();
  tile_zero<3>();
  const std::int64_t chunks = ceil_div(k, kChunk);
  constexpr std::int64_t kStageBytes = G * kGroupBytes;
  for (std::int64_t c = 0; c < chunks; ++c) {
    char* stage = numbers + (c % 2) * kStageBytes;
    if ((c + 1) * kChunk <= k) {
      for (int r = 0; r < G * kLanes; ++r) {
        const std::int8_t* from = rows[r] + c * kChunk;
        _mm_prefetch(from + kPrefetchBytes, _MM_HINT_T0);
        convert<true>(from, 0, stage + (r / kLanes) * kGroupBytes + (r % kLanes) * 64);
      }
    } else {
      const __mmask64 part = Lanes::part(k - c * kChunk);
      for (int r = 0; r < G * kLanes; ++r)
        convert<false>(rows[r] + c * kChunk, part, stage + (r / kLanes) * kGroupBytes + (r % kLanes) * 64);
    }
    if (c > 0) multiply<T, G>(a + (c - 1) * 2 * T * kTileBytes, numbers + ((c - 1) % 2) * kStageBytes);
  }
  multiply<T, G>(a + (chunks - 1) * 2 * T * kTileBytes, numbers + ((chunks - 1) % 2) * kStageBytes);
  tile_store<0>(to, stride);
  if constexpr (T > 1) tile_store<1>(to + 64, stride);
  if constexpr (T > 2) tile_store<2>(to + 128, stride);
  if constexpr (T > 3) tile_store<3>(to + 192, stride);
  if constexpr (G == 2) tile_store<2>(to + T * 64, stride);
  if constexpr (G == 2 && T == 2) tile_store<3>(to + T * 64 + 64, stride);
}

/// `columns` adjacent columns of C: the sums of column i at `from` + i * row_tiles * 64 bytes.
void write_columns(const LinearInt8Args& args, const char* from, std::int64_t column, std::int64_t columns) {
  const std::int64_t row_tiles = row_tiles_of(args);
  const __mmask16 part = mask16(columns);
  const __m512 scales =
      args.scales_dtype == DType::kF32
          ? _mm512_maskz_loadu_ps(part, static_cast<const float*>(args.scales) + column)
          : _mm512_castsi512_ps(_mm512_slli_epi32(
                _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(part, static_cast<const std::uint16_t*>(args.scales) + column)), 16));
  for (std::int64_t t = 0; t < row_tiles; ++t) {
    __m512i lines[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) lines[i] = _mm512_load_si512(from + (i * row_tiles + t) * 64);
    Lanes::transpose(lines);
    for (std::int64_t r = 0; r < kLanes && t * kLanes + r < args.m; ++r) {
      const __m512 result = _mm512_mul_ps(_mm512_mul_ps(_mm512_castsi512_ps(lines[r]), _mm512_set1_ps(kSumsBy)), scales);
      const std::int64_t at = (t * kLanes + r) * args.ldc + column;
      if (args.c_dtype == DType::kF32) {
        _mm512_mask_storeu_ps(static_cast<float*>(args.c) + at, part, result);
      } else {
        _mm256_mask_storeu_epi16(static_cast<std::uint16_t*>(args.c) + at, part, (__m256i)_mm512_cvtneps_pbh(result));
      }
    }
  }
}

struct Scratch {
  char* a;
  char* numbers;
  char* sums;  // 16 streams x 16 columns
};

/// All columns of a worker: 16 streams of `apart` columns, and what is left.
template <int T>
void run(const LinearInt8Args& args, std::int64_t begin, std::int64_t end, const Scratch& scratch) {
  constexpr std::int64_t kColumnBytes = T * 64;
  const std::int64_t apart = (end - begin) / kLanes;
  const std::int8_t* rows[2 * kLanes];
  for (std::int64_t first = 0; first < apart; first += kLanes) {
    const std::int64_t here = apart - first < kLanes ? apart - first : kLanes;
    std::int64_t i = 0;
    const auto point = [&](std::int64_t group) {
      for (std::int64_t r = 0; r < kLanes; ++r) rows[group * kLanes + r] = args.b + (begin + r * apart + first + i + group) * args.ldb;
    };
    if constexpr (T <= 2) {
      for (; i + 2 <= here; i += 2) {
        point(0);
        point(1);
        columns_of<T, 2>(rows, scratch.a, args.k, scratch.numbers, scratch.sums + i * kColumnBytes, kLanes * kColumnBytes);
      }
    }
    for (; i < here; ++i) {
      point(0);
      columns_of<T, 1>(rows, scratch.a, args.k, scratch.numbers, scratch.sums + i * kColumnBytes, kLanes * kColumnBytes);
    }
    for (std::int64_t r = 0; r < kLanes; ++r)
      write_columns(args, scratch.sums + r * kLanes * kColumnBytes, begin + r * apart + first, here);
  }
  const std::int64_t left = begin + apart * kLanes;
  if (left == end) return;
  for (std::int64_t r = 0; r < kLanes; ++r) rows[r] = args.b + (left + r < end ? left + r : left) * args.ldb;
  columns_of<T, 1>(rows, scratch.a, args.k, scratch.numbers, scratch.sums, kColumnBytes);
  write_columns(args, scratch.sums, left, end - left);
}

}  // namespace

std::size_t int8_scratch_bytes(const LinearInt8Args& args) {
  return static_cast<std::size_t>(row_tiles_of(args) * (chunks_of(args) * 2 + kLanes) * kTileBytes + kStagesBytes);
}

bool int8_columns(const LinearInt8Args& args, std::int64_t begin, std::int64_t end, void* scratch) {
  auto* numbers = static_cast<char*>(scratch);
  char* sums = numbers + kStagesBytes;
  char* a = sums + row_tiles_of(args) * kLanes * kTileBytes;
  TileConfig config{};
  config.palette = 1;
  for (int tile = 0; tile < 8; ++tile) {
    config.bytes_per_row[tile] = 64;
    config.rows[tile] = kLanes;
  }
  if (!transpose_a(args, a)) return false;
  tile_configure(config);
  switch (row_tiles_of(args)) {
    case 1:
      run<1>(args, begin, end, {a, numbers, sums});
      break;
    case 2:
      run<2>(args, begin, end, {a, numbers, sums});
      break;
    case 3:
      run<3>(args, begin, end, {a, numbers, sums});
      break;
    default:
      run<4>(args, begin, end, {a, numbers, sums});
  }
  tile_release();
  return true;
}

}  // namespace ipexrun::kernels::amx_avx512_fp16
