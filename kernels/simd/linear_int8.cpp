// linear_int8 on vector units; compiled once per instruction set, with IPEXRUN_KERNEL_ISA naming the namespace.
//
// Dot products: up to four rows of A, in L1 or L2 as fp32, times four rows of B, each of whose vectors is converted once. For one row of A
// that is three instructions for a vector of B, fewer cycles than memory takes to bring it.
#include "kernels/simd/linear_int8.h"

#include "kernels/packed.h"
#include "kernels/simd/element.h"
#include "kernels/simd/floats.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

using Vector = Floats::Vector;
constexpr std::int64_t kLanes = Lanes::kCount;
constexpr std::int64_t kSumsOfRow = 4;
constexpr std::int64_t kPrefetchBytes = 1024;

#if defined(IPEXRUN_KERNEL_ISA_AVX512)
[[gnu::always_inline]] inline Vector int8_floats(const std::int8_t* from) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
}
[[gnu::always_inline]] inline Vector int8_floats(const std::int8_t* from, std::int64_t n) {
  const auto part = static_cast<__mmask16>(_bzhi_u32(0xffffu, static_cast<unsigned>(n)));
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(part, from)));
}
#else
[[gnu::always_inline]] inline Vector int8_floats(const std::int8_t* from) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
}
[[gnu::always_inline]] inline Vector int8_floats(const std::int8_t* from, std::int64_t n) {
  std::int8_t bytes[8] = {};
  for (std::int64_t i = 0; i < n; ++i) bytes[i] = from[i];
  return int8_floats(bytes);
}
#endif

template <int R, int C>
void dot(const float* a, std::int64_t lda, const std::int8_t* b, std::int64_t ldb, std::int64_t k, float* sums) {
  Vector sum[R][C];
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C; ++c) sum[r][c] = Floats::all(0.0f);
  }
  std::int64_t i = 0;
  for (; i + kLanes <= k; i += kLanes) {
    if (C > 1 && i % 64 == 0) {
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) __builtin_prefetch(b + c * ldb + i + kPrefetchBytes);
    }
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) {
      const Vector value = int8_floats(b + c * ldb + i);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) sum[r][c] = Floats::fma(Floats::of_bits(Lanes::load(a + r * lda + i)), value, sum[r][c]);
    }
  }
  if (i < k) {  // A goes on with zeros
    for (int c = 0; c < C; ++c) {
      const Vector value = int8_floats(b + c * ldb + i, k - i);
      for (int r = 0; r < R; ++r) sum[r][c] = Floats::fma(Floats::of_bits(Lanes::load(a + r * lda + i)), value, sum[r][c]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C; ++c) sums[r * kSumsOfRow + c] = Floats::sum(sum[r][c]);
  }
}

template <int C>
void dot_rows(const float* a, std::int64_t lda, std::int64_t rows, const std::int8_t* b, std::int64_t ldb, std::int64_t k, float* sums) {
  switch (rows) {
    case 1:
      return dot<1, C>(a, lda, b, ldb, k, sums);
    case 2:
      return dot<2, C>(a, lda, b, ldb, k, sums);
    case 3:
      return dot<3, C>(a, lda, b, ldb, k, sums);
    default:
      return dot<4, C>(a, lda, b, ldb, k, sums);
  }
}

template <typename Element>
void finish_row(const float* sums, const float* scales, std::int64_t n, Element* to) {
  for (std::int64_t i = 0; i < n; ++i) put(to + i, sums[i] * scales[i]);
}

}  // namespace

void int8_dot(const float* a, std::int64_t lda, std::int64_t rows, const std::int8_t* b, std::int64_t ldb, std::int64_t columns,
              std::int64_t k, float* sums) {
  if (columns == 4) return dot_rows<4>(a, lda, rows, b, ldb, k, sums);
  for (std::int64_t c = 0; c < columns; ++c) dot_rows<1>(a, lda, rows, b + c * ldb, ldb, k, sums + c);
}

void int8_finish(const float* sums, const float* scales, std::int64_t n, DType dtype, void* to) {
  if (dtype == DType::kF32) {
    finish_row(sums, scales, n, static_cast<float*>(to));
  } else {
    finish_row(sums, scales, n, static_cast<std::uint16_t*>(to));
  }
}

#if defined(IPEXRUN_KERNEL_ISA_AVX512)
namespace {

/// Byte `Place` of each lane, as a float whose lower half is zero: a bf16 in the upper one.
template <int Place>
[[gnu::always_inline]] inline __m512i byte_as_bf16(__m512i quads) {
  const __m512i up = Place == 3 ? quads : _mm512_slli_epi32(quads, 24 - 8 * Place);
  return _mm512_castps_si512(_mm512_cvtepi32_ps(_mm512_srai_epi32(up, 24)));
}

/// Two numbers that follow each other in K, the first one in the lower half.
[[gnu::always_inline]] inline __m512i pair(__m512i first, __m512i second) { return _mm512_or_si512(_mm512_srli_epi32(first, 16), second); }

}  // namespace

/// Up to 32 columns of B, rows of `k` numbers in memory, as a panel of packed.h. 64 numbers of 16 columns at a time: transposed by four
/// numbers, so that a lane is a column, and taken apart by shifts.
void int8_unpack(const std::int8_t* b, std::int64_t ldb, std::int64_t columns, std::int64_t k, std::uint16_t* panel) {
  constexpr std::int64_t kAtOnce = 64;
  for (std::int64_t half = 0; half < 2; ++half) {
    const std::int64_t valid = columns - half * kTileColumns;
    for (std::int64_t at = 0; at < k; at += kAtOnce) {
      const Lanes::Part part = Lanes::part(k - at < kAtOnce ? k - at : kAtOnce);
      __m512i quads[16];
#pragma GCC unroll 16
      for (std::int64_t c = 0; c < 16; ++c)
        quads[c] = c < valid ? Lanes::load_part(b + (half * kTileColumns + c) * ldb + at, part) : Lanes::zero();
      Lanes::transpose(quads);
      const std::int64_t lines = (k - at < kAtOnce ? ceil_div(k - at, kStepK) * kStepK : kAtOnce) / 2;
      for (std::int64_t line = 0; line < lines; line += 2) {
        const __m512i quad = quads[line / 2];
        std::uint16_t* to = panel + packed_offset(at + line * 2, half * kTileColumns);
        Lanes::store(to, pair(byte_as_bf16<0>(quad), byte_as_bf16<1>(quad)));
        Lanes::store(to + 2 * kTileColumns, pair(byte_as_bf16<2>(quad), byte_as_bf16<3>(quad)));
      }
    }
  }
}
#endif

}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
