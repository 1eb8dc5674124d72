// Groups of rows times panels of bf16: the sums of a group live in registers, each line of B is read once a group and multiplied by
// broadcast pairs of A. What linear and winograd are made of; compiled for avx2, avx512 and avx512_bf16.
#pragma once

#include <immintrin.h>

#include <utility>

#include "kernels/packed.h"
#if defined(IPEXRUN_KERNEL_ISA_AVX512_BF16)
#include "kernels/simd/isa_avx512_bf16.h"
#elif defined(IPEXRUN_KERNEL_ISA_AVX512)
#include "kernels/simd/isa_avx512.h"
#else
#include "kernels/simd/isa_avx2.h"
#endif

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

constexpr int kColumnsAtOnce = Isa::kTilesAtOnce * static_cast<int>(kTileColumns);
constexpr std::int64_t kAhead = 4096 / 2;  ///< elements of B that are fetched ahead of few rows, which wait for memory

/// R rows x P groups of kColumnsAtOnce columns, each P further by `group_stride` elements of B. Sums start from `start`, whose rows are
/// `start_stride` floats apart (0: one for all), and end in `out`, R lines of P * kColumnsAtOnce floats. Each step fetches `lines` lines
/// into L2, from `ahead` on.
template <int R, int P, bool Fetch>
void multiply(const Isa::A* a, std::int64_t a_stride, const std::uint16_t* b, std::int64_t group_stride, std::int64_t steps,
              const float* start, std::int64_t start_stride, float* out, const char* ahead, std::int64_t lines) {
  Isa::Vector sums[R][2 * P];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < 2 * P; ++v) sums[r][v] = Isa::load(start + r * start_stride + v * Isa::kWidth);
  }
  for (std::int64_t s = 0; s < steps; ++s) {
    for (std::int64_t i = 0; i < lines; ++i, ahead += 64) _mm_prefetch(ahead, _MM_HINT_T1);
    for (std::int64_t pair = 0; pair < kStepK / 2; ++pair) {
      const std::uint16_t* line = b + s * kStepElements + pair * 2 * kTileColumns;
      const Isa::A* column = a + s * kStepK + pair * 2;
      Isa::Operand operands[2 * P];
#pragma GCC unroll 8
      for (int v = 0; v < 2 * P; ++v) {
        const std::uint16_t* from = line + (v / 2) * group_stride + (v % 2) * Isa::kVectorStride;
        if constexpr (Fetch) _mm_prefetch(reinterpret_cast<const char*>(from + kAhead), _MM_HINT_T0);
        operands[v] = Isa::load_b(from);
      }
      // A row's pair is used for all columns at once: kept longer, pairs would push sums out of registers.
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const Isa::Pair both = Isa::broadcast(column + r * a_stride);
#pragma GCC unroll 8
        for (int v = 0; v < 2 * P; ++v) sums[r][v] = Isa::add(sums[r][v], both, operands[v]);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < 2 * P; ++v) Isa::store(out + (r * 2 * P + v) * Isa::kWidth, sums[r][v]);
  }
}

using Multiply = void (*)(const Isa::A*, std::int64_t, const std::uint16_t*, std::int64_t, std::int64_t, const float*, std::int64_t, float*,
                          const char*, std::int64_t);

/// Groups of columns that so many rows take at once where nobody else reads B: one chain of additions alone would wait for its latency,
/// and one stream of B for memory.
constexpr int groups_for(int rows) {
  if (Isa::kTilesAtOnce < 2) return 1;
  constexpr int kSums = Isa::kRows * 2 - 2;
  for (int groups = 4; groups > 1; --groups) {
    if (rows * 2 * groups + 2 * groups * Isa::kOperandRegisters <= kSums + 4) return groups;
  }
  return 1;
}

template <std::size_t... R>
struct Tables {
  static constexpr Multiply kOne[] = {multiply<static_cast<int>(R) + 1, 1, false>...};
  static constexpr Multiply kFirst[] = {multiply<static_cast<int>(R) + 1, 1, true>...};  // to read this part of B
  static constexpr Multiply kAlone[] = {multiply<static_cast<int>(R) + 1, groups_for(static_cast<int>(R) + 1), true>...};
};
template <std::size_t... R>
constexpr Tables<R...> tables_of(std::index_sequence<R...>) {
  return {};
}
using ByRows = decltype(tables_of(std::make_index_sequence<Isa::kRows>()));  // by rows - 1

}  // namespace
}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
