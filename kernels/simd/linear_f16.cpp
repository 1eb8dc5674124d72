// linear_f32 of fp16 on AVX512-FP16: products summed in fp16 over kChunkSteps * 16 rows of K a lane, and these sums in fp32.
//
// A pair of neighbours of A, broadcast, meets a line of packed.h: even and odd rows of K are summed in lanes of their own and added up at
// the end. Range: rows of A are multiplied by the power of two that brings their largest element to [8, 16), and their sums by its inverse,
// so that small operands do not end among the denormals. Where a sum is not finite all the same, these 32 columns of the row are computed
// again by the variant with sums in fp32: fp16 may have overflowed where it would not. Few rows are left to that variant: memory bounds
// them.
#include <immintrin.h>

#include "kernels/simd/linear_f32.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

constexpr std::int64_t kChunkSteps = 2;
constexpr std::int64_t kChunk = kChunkSteps * kStepK;
constexpr int kRows = 12;  // 24 sums, two operands and a broadcast in 32 registers
constexpr std::int64_t kFewRows = 6;
constexpr std::int64_t kPrefetchBytes = 4096;  // of B
constexpr std::int64_t kSumsOfRow = 2 * kPanelColumns;

inline __m512 lower(__m512h v) { return _mm512_cvtxph_ps(_mm512_castph512_ph256(v)); }
inline __m512 upper(__m512h v) { return _mm512_cvtxph_ps(_mm256_castsi256_ph(_mm512_extracti64x4_epi64(_mm512_castph_si512(v), 1))); }
inline void add_to(float* sums, __m512 v) { _mm512_store_ps(sums, _mm512_add_ps(_mm512_load_ps(sums), v)); }

/// Adds R rows x one panel to `sums`, A as kChunk elements of each row and `next` on the following ones of each, kSumsOfRow a row: for 16
/// columns their even and odd rows of K side by side, then for the other 16.
template <int R>
void multiply(const std::uint16_t* chunk, std::int64_t next, const char* b, std::int64_t steps, float* sums) {
  for (std::int64_t step = 0; step < steps; step += kChunkSteps, chunk += next) {
    const std::uint16_t* a = chunk;
    __m512h s[R][2];
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) s[r][0] = s[r][1] = _mm512_setzero_ph();
    const std::int64_t end = step + kChunkSteps < steps ? step + kChunkSteps : steps;
    for (std::int64_t i = step; i < end; ++i, b += kStepBytes) {
      for (std::int64_t line = 0; line < kStepK / 2; ++line, a += 2) {
        __builtin_prefetch(b + kPrefetchBytes + line * 64);
        __builtin_prefetch(b + kPrefetchBytes + kTileElements * 2 + line * 64);
        const __m512h left = _mm512_loadu_ph(b + line * 64);
        const __m512h right = _mm512_loadu_ph(b + kTileElements * 2 + line * 64);
#pragma GCC unroll 12
        for (int r = 0; r < R; ++r) {
          int pair;
          __builtin_memcpy(&pair, a + r * kChunk, 4);
          const __m512h both = _mm512_castsi512_ph(_mm512_set1_epi32(pair));
          s[r][0] = _mm512_fmadd_ph(both, left, s[r][0]);
          s[r][1] = _mm512_fmadd_ph(both, right, s[r][1]);
        }
      }
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      float* to = sums + r * kSumsOfRow;
      add_to(to, lower(s[r][0]));
      add_to(to + 16, upper(s[r][0]));
      add_to(to + 32, lower(s[r][1]));
      add_to(to + 48, upper(s[r][1]));
    }
  }
}

using Multiply = void (*)(const std::uint16_t*, std::int64_t, const char*, std::int64_t, float*);
constexpr Multiply kMultiply[] = {multiply<1>, multiply<2>, multiply<3>, multiply<4>,  multiply<5>,  multiply<6>,
                                  multiply<7>, multiply<8>, multiply<9>, multiply<10>, multiply<11>, multiply<12>};

struct Plan {
  std::int64_t row_block;
  std::int64_t row_bytes;  // as copied
  std::int64_t a_bytes;
  std::int64_t back_bytes;
};

Plan plan_of(const LinearF32Args& args, const LinearBlock& block) {
  Plan plan{};
  const std::int64_t rows = block.row_end - block.row_begin;
  plan.row_bytes = ceil_div(args.k, kChunk) * kChunk * 2;
  std::int64_t most = block.l2_bytes / 4 / plan.row_bytes / kRows * kRows;
  if (most < kRows) most = kRows;
  plan.row_block = rows < most ? rows : ceil_div(rows, ceil_div(rows, most));
  plan.a_bytes = plan.row_block * plan.row_bytes;
  plan.back_bytes = ceil_div(plan.row_block * 4, 64) * 64;
  return plan;
}

inline __mmask32 mask32(std::int64_t n) { return n >= 32 ? 0xffffffffu : (1u << n) - 1u; }

/// A row times a power of two, in chunks that are `next` apart, zeros behind it; the inverse of that power.
float copy_row(const std::uint16_t* from, std::int64_t k, std::uint16_t* to, std::int64_t next) {
  const __m512i magnitude = _mm512_set1_epi16(0x7fff);
  __m512i largest = _mm512_setzero_si512();
  for (std::int64_t i = 0; i < k; i += 32) {
    largest = _mm512_max_epu16(largest, _mm512_and_si512(magnitude, _mm512_maskz_loadu_epi16(mask32(k - i), from + i)));
  }
  alignas(64) std::uint16_t lanes[32];
  _mm512_store_si512(lanes, largest);
  std::uint16_t bits = 0;
  for (const std::uint16_t lane : lanes) bits = lane > bits ? lane : bits;
  // Exponents as in memory, 15 for [1, 2). A row of zeros, or of what is not finite, stays.
  const int exponent = bits >= 0x7c00 || bits == 0 ? 18 : bits >> 10;
  const int up = 18 - exponent;  // -12 to 18
  const auto scale = static_cast<_Float16>(__builtin_ldexpf(1.0f, up > 15 ? 15 : up));
  const __m512h factor = _mm512_set1_ph(scale);
  for (std::int64_t i = 0; i < k; i += 32) {
    const __m512h values = _mm512_castsi512_ph(_mm512_maskz_loadu_epi16(mask32(k - i), from + i));
    _mm512_storeu_ph(to + i / kChunk * next + i % kChunk, _mm512_mul_ph(values, factor));
  }
  return 1.0f / static_cast<float>(scale);
}

/// Sums of even and odd rows of K of 16 columns.
inline __m512 together(const float* sums) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  const __m512 a = _mm512_load_ps(sums);
  const __m512 b = _mm512_load_ps(sums + 16);
  return _mm512_add_ps(_mm512_permutex2var_ps(a, even, b), _mm512_permutex2var_ps(a, odd, b));
}

/// A row of a panel to C; false where a sum is not finite.
bool write_row(const LinearF32Args& args, std::int64_t row, std::int64_t column, const float* sums, float back) {
  const __mmask32 columns = mask32(args.n - column);
  const auto* bias = static_cast<const std::uint16_t*>(args.bias);
  auto* to = static_cast<std::uint16_t*>(args.c) + row * args.ldc + column;
  const __m512 scale = _mm512_set1_ps(back);
  unsigned wrong = 0;
  for (int half = 0; half < 2; ++half, sums += 32) {
    const auto valid = static_cast<__mmask16>(columns >> (16 * half));
    __m512 value = _mm512_mul_ps(scale, together(sums));
    wrong |= _mm512_mask_fpclass_ps_mask(valid, value, 0x99);  // NaN and infinities
    if (bias != nullptr) value = _mm512_add_ps(value, _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(valid, bias + column + 16 * half)));
    _mm256_mask_storeu_epi16(to + 16 * half, valid, _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  return wrong == 0;
}

void run(const LinearF32Args& args, const LinearBlock& block, char* scratch) {
  const Plan plan = plan_of(args, block);
  auto* a = reinterpret_cast<std::uint16_t*>(scratch);
  auto* back = reinterpret_cast<float*>(scratch + plan.a_bytes);
  char* again = scratch + plan.a_bytes + plan.back_bytes;
  const std::int64_t steps = steps_of(args.k);
  for (std::int64_t row = block.row_begin; row < block.row_end; row += plan.row_block) {
    const std::int64_t rows = block.row_end - row < plan.row_block ? block.row_end - row : plan.row_block;
    for (std::int64_t r = 0; r < rows; ++r) {
      back[r] = copy_row(static_cast<const std::uint16_t*>(args.a) + (row + r) * args.lda, args.k, a + r * kChunk, rows * kChunk);
    }
    const std::int64_t groups = ceil_div(rows, kRows);
    for (std::int64_t panel = block.panel_begin; panel < block.panel_end; ++panel) {
      const char* b = static_cast<const char*>(args.packed_b) + panel * steps * kStepBytes;
      for (std::int64_t group = 0; group < groups; ++group) {
        const std::int64_t first = rows * group / groups;
        const std::int64_t here = rows * (group + 1) / groups - first;
        alignas(64) float sums[kRows * kSumsOfRow];
        __builtin_memset(sums, 0, static_cast<std::size_t>(here * kSumsOfRow) * 4);
        kMultiply[here - 1](a + first * kChunk, rows * kChunk, b, steps, sums);
        for (std::int64_t r = 0; r < here; ++r) {
          const std::int64_t at = row + first + r;
          if (write_row(args, at, panel * kPanelColumns, sums + r * kSumsOfRow, back[first + r])) continue;
          avx512::linear_f32(args, {at, at + 1, panel, panel + 1}, again);
        }
      }
    }
  }
}

}  // namespace

std::size_t linear_f32_scratch_bytes(const LinearF32Args& args, const LinearBlock& block) {
  if (args.m <= kFewRows) return avx512::linear_f32_scratch_bytes(args, block);
  const Plan plan = plan_of(args, block);
  return static_cast<std::size_t>(plan.a_bytes + plan.back_bytes) + avx512::linear_f32_scratch_bytes(args, {0, 1, 0, 1});
}

void linear_f32(const LinearF32Args& args, const LinearBlock& block, void* scratch) {
  // By all rows, not those of the block: any number of threads gives the same bits.
  args.m > kFewRows ? run(args, block, static_cast<char*>(scratch)) : avx512::linear_f32(args, block, scratch);
}

}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
