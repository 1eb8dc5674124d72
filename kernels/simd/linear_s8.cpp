// linear_s8 on vector units; compiled once per instruction set, with IPEXRUN_KERNEL_ISA naming the namespace.
//
// Loops, outermost first: blocks of rows (their A, copied and padded once, stays in L2), panels, groups of Isa::kRows rows, parts of a
// panel. The sums of a group and a part live in registers for the whole of K; each line of B is read once a group and multiplied by four
// neighbours of a row of A, broadcast.
#include "kernels/simd/linear_s8.h"

#include <immintrin.h>

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

#if defined(IPEXRUN_KERNEL_ISA_AVX512_VNNI)
constexpr auto finish = avx512::linear_s8_finish;

struct Isa {
  using A = std::uint8_t;  ///< a signed A plus 128
  using Vector = __m512i;  ///< the sums of 16 columns
  static constexpr int kRows = 12;
  static constexpr int kVectors = 2;  ///< of a part
  static constexpr int kColumns = 32;
  static constexpr int kColumnsOfVector = 16;

  static Vector start(const std::int32_t* from) { return _mm512_loadu_si512(from); }
  static Vector b(const std::int8_t* line, int v) { return _mm512_load_si512(line + v * kTileBytesS8); }
  static Vector a(const A* four) {
    int bits;
    __builtin_memcpy(&bits, four, 4);
    return _mm512_set1_epi32(bits);
  }
  static Vector add(Vector sum, Vector a, Vector b) { return _mm512_dpbusd_epi32(sum, a, b); }
  static void store(std::int32_t* to, const Vector (&sums)[kVectors]) {
    for (int v = 0; v < kVectors; ++v) _mm512_storeu_si512(to + v * 16, sums[v]);
  }
};
#elif defined(IPEXRUN_KERNEL_ISA_AVX2_VNNI)
constexpr auto finish = avx2::linear_s8_finish;

struct Isa {
  using A = std::uint8_t;
  using Vector = __m256i;
  static constexpr int kRows = 6;
  static constexpr int kVectors = 2;
  static constexpr int kColumns = 16;
  static constexpr int kColumnsOfVector = 8;

  static Vector start(const std::int32_t* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }
  static Vector b(const std::int8_t* line, int v) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(line + v * 32)); }
  static Vector a(const A* four) {
    int bits;
    __builtin_memcpy(&bits, four, 4);
    return _mm256_set1_epi32(bits);
  }
  static Vector add(Vector sum, Vector a, Vector b) { return _mm256_dpbusd_avx_epi32(sum, a, b); }
  static void store(std::int32_t* to, const Vector (&sums)[kVectors]) {
    for (int v = 0; v < kVectors; ++v) _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + v * 8), sums[v]);
  }
};
#else
constexpr auto finish = avx2::linear_s8_finish;

/// Products of 16 bits: those of bytes (VPMADDUBSW) saturate, 2 * 255 * 127 is no int16.
struct Isa {
  using A = std::int16_t;
  using Vector = __m256i;  ///< the sums of four columns, each in two parts
  static constexpr int kRows = 3;
  static constexpr int kVectors = 4;
  static constexpr int kColumns = 16;
  static constexpr int kColumnsOfVector = 4;

  static Vector start(const std::int32_t* from) { return _mm256_cvtepu32_epi64(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))); }
  static Vector b(const std::int8_t* line, int v) {
    return _mm256_cvtepi8_epi16(_mm_load_si128(reinterpret_cast<const __m128i*>(line + v * 16)));
  }
  static Vector a(const A* four) {
    long long bits;
    __builtin_memcpy(&bits, four, 8);
    return _mm256_set1_epi64x(bits);
  }
  static Vector add(Vector sum, Vector a, Vector b) { return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b)); }
  static void store(std::int32_t* to, const Vector (&sums)[kVectors]) {
    for (int v = 0; v < kVectors; v += 2) {
      const __m256i both = _mm256_permute4x64_epi64(_mm256_hadd_epi32(sums[v], sums[v + 1]), 0xd8);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + v * 4), both);
    }
  }
};
#endif

constexpr std::int64_t kPrefetchBytes = 2048;

/// Four rows of K. What registers are short of, beside the sums, is loaded where it is used.
template <int R>
[[gnu::always_inline]] inline void add_line(Isa::Vector (&sums)[R][Isa::kVectors], const Isa::A* a, std::int64_t a_stride,
                                            const std::int8_t* b) {
  if constexpr (Isa::kVectors < Isa::kRows) {
    Isa::Vector operands[Isa::kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < Isa::kVectors; ++v) operands[v] = Isa::b(b, v);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const Isa::Vector four = Isa::a(a + r * a_stride);
#pragma GCC unroll 4
      for (int v = 0; v < Isa::kVectors; ++v) sums[r][v] = Isa::add(sums[r][v], four, operands[v]);
    }
  } else {
    Isa::Vector fours[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) fours[r] = Isa::a(a + r * a_stride);
#pragma GCC unroll 4
    for (int v = 0; v < Isa::kVectors; ++v) {
      const Isa::Vector operand = Isa::b(b, v);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) sums[r][v] = Isa::add(sums[r][v], fours[r], operand);
    }
  }
}

/// R rows x P parts of a panel, or the parts of P panels `next` bytes apart. Rows of `out` are `out_stride` sums apart, parts in one are
/// kColumns apart.
template <int R, int P>
void multiply(const Isa::A* a, std::int64_t a_stride, const std::int8_t* b, std::int64_t next, std::int64_t steps, const PanelS8* columns,
              std::int64_t first, std::int32_t* out, std::int64_t out_stride) {
  Isa::Vector sums[P][R][Isa::kVectors];
  for (int p = 0; p < P; ++p) {
    for (int v = 0; v < Isa::kVectors; ++v) {
      const Isa::Vector start = Isa::start(columns[p].start + first + v * Isa::kColumnsOfVector);
      for (int r = 0; r < R; ++r) sums[p][r][v] = start;
    }
  }
  for (std::int64_t s = 0; s < steps; ++s) {
    const std::int8_t* line = b + s * kStepBytesS8;
    const Isa::A* column = a + s * kStepKS8;
    for (std::int64_t q = 0; q < kStepKS8 / 4; ++q, line += 4 * kTileColumns, column += 4) {
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) {
        const std::int8_t* at = line + p * next;
        if (R <= 2) __builtin_prefetch(at + kPrefetchBytes);
        if (R <= 2 && Isa::kColumns > kTileColumns) __builtin_prefetch(at + kPrefetchBytes + kTileBytesS8);
        add_line<R>(sums[p], column, a_stride, at);
      }
    }
  }
  for (int p = 0; p < P; ++p) {
    for (int r = 0; r < R; ++r) Isa::store(out + r * out_stride + p * kPanelColumns, sums[p][r]);
  }
}

using Multiply = void (*)(const Isa::A*, std::int64_t, const std::int8_t*, std::int64_t, std::int64_t, const PanelS8*, std::int64_t,
                          std::int32_t*, std::int64_t);

// By rows - 1.
constexpr Multiply kMultiply[] = {
    multiply<1, 1>, multiply<2, 1>, multiply<3, 1>,
#if !defined(IPEXRUN_KERNEL_ISA_AVX2)
    multiply<4, 1>, multiply<5, 1>, multiply<6, 1>,
#endif
#if defined(IPEXRUN_KERNEL_ISA_AVX512_VNNI)
    multiply<7, 1>, multiply<8, 1>, multiply<9, 1>, multiply<10, 1>, multiply<11, 1>, multiply<12, 1>,
#endif
};
static_assert(sizeof(kMultiply) / sizeof(kMultiply[0]) == Isa::kRows);

/// Panels at once where there are few rows: one chain of additions alone would wait for its latency.
constexpr int kPanelsOfFewRows = 12 / Isa::kVectors / 2 > 4 ? 4 : 12 / Isa::kVectors / 2;

std::int64_t padded_k(const LinearS8Args& args) { return steps_of_s8(args.k) * kStepKS8; }

/// Rows of A that are copied at a time: half of L2.
std::int64_t row_block_of(const LinearS8Args& args, const LinearBlock& block) {
  const std::int64_t rows = block.row_end - block.row_begin;
  std::int64_t most = block.l2_bytes / 2 / (padded_k(args) * static_cast<std::int64_t>(sizeof(Isa::A))) / Isa::kRows * Isa::kRows;
  if (most < Isa::kRows) most = Isa::kRows;
  return rows < most ? rows : most;
}

/// A row of A with zeros up to a whole step.
void copy_row(const LinearS8Args& args, std::int64_t row, Isa::A* to) {
  const char* from = static_cast<const char*>(args.a) + row * args.lda;
#if defined(IPEXRUN_KERNEL_ISA_AVX2)
  if (args.a_signed) {
    for (std::int64_t k = 0; k < args.k; ++k) to[k] = reinterpret_cast<const std::int8_t*>(from)[k];
  } else {
    for (std::int64_t k = 0; k < args.k; ++k) to[k] = reinterpret_cast<const std::uint8_t*>(from)[k];
  }
#else
  __builtin_memcpy(to, from, static_cast<std::size_t>(args.k));
  if (args.a_signed) {
    for (std::int64_t k = 0; k < args.k; ++k) to[k] ^= 0x80;
  }
#endif
  __builtin_memset(to + args.k, 0, static_cast<std::size_t>(padded_k(args) - args.k) * sizeof(Isa::A));
}

}  // namespace

std::size_t linear_s8_scratch_bytes(const LinearS8Args& args, const LinearBlock& block) {
  return static_cast<std::size_t>(row_block_of(args, block) * padded_k(args)) * sizeof(Isa::A);
}

void linear_s8(const LinearS8Args& args, const LinearBlock& block, const PanelS8* panels, void* scratch) {
  auto* a = static_cast<Isa::A*>(scratch);
  const std::int64_t stride = padded_k(args);
  const std::int64_t steps = steps_of_s8(args.k);
  const std::int64_t panel_bytes = steps * kStepBytesS8;
  const std::int64_t row_block = row_block_of(args, block);
  const auto* packed = static_cast<const std::int8_t*>(args.packed_b);
  for (std::int64_t row = block.row_begin; row < block.row_end; row += row_block) {
    const std::int64_t rows = block.row_end - row < row_block ? block.row_end - row : row_block;
    for (std::int64_t r = 0; r < rows; ++r) copy_row(args, row + r, a + r * stride);
    std::int64_t panel = block.panel_begin;
    if (rows == 1) {
      alignas(64) std::int32_t out[kPanelsOfFewRows * kPanelColumns];
      for (; panel + kPanelsOfFewRows <= block.panel_end; panel += kPanelsOfFewRows) {
        const PanelS8* columns = panels + (panel - block.panel_begin);
        for (std::int64_t part = 0; part < kPanelColumns; part += Isa::kColumns) {
          multiply<1, kPanelsOfFewRows>(a, 0, packed + panel * panel_bytes + part / kTileColumns * kTileBytesS8, panel_bytes, steps,
                                        columns, part, out + part, 0);
        }
        for (std::int64_t p = 0; p < kPanelsOfFewRows; ++p) finish(args, panel + p, columns[p], out + p * kPanelColumns, row, 1);
      }
    }
    for (; panel < block.panel_end; ++panel) {
      const PanelS8* columns = panels + (panel - block.panel_begin);
      alignas(64) std::int32_t out[Isa::kRows * kPanelColumns];
      for (std::int64_t r = 0; r < rows; r += Isa::kRows) {
        const std::int64_t here = rows - r < Isa::kRows ? rows - r : Isa::kRows;
        for (std::int64_t part = 0; part < kPanelColumns; part += Isa::kColumns) {
          kMultiply[here - 1](a + r * stride, stride, packed + panel * panel_bytes + part / kTileColumns * kTileBytesS8, 0, steps, columns,
                              part, out + part, kPanelColumns);
        }
        finish(args, panel, *columns, out, row + r, here);
      }
    }
  }
}

}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
