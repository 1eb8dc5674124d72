// linear on vector units; compiled once per instruction set, with IPEXRUN_KERNEL_ISA naming the namespace.
//
// Loops, outermost first: blocks of rows (their A, converted once, stays in L2), panels, groups of Isa::kRows rows. A group's sums
// live in registers for the whole of K; each line of B is read once a group and multiplied by broadcast pairs of A.
#include "kernels/simd/linear.h"

#include "kernels/bf16.h"
#include "kernels/packed.h"
#include "kernels/simd/epilogue.h"

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

/// R rows x P groups of kColumnsAtOnce columns, each P further by `group_stride` elements of B. Sums start from the bias and end in
/// `out`, R lines of P * kColumnsAtOnce floats.
template <int R, int P>
void multiply(const Isa::A* a, std::int64_t a_stride, const std::uint16_t* b, std::int64_t group_stride, std::int64_t steps,
              const float* bias, float* out) {
  Isa::Vector sums[R][2 * P];
  for (int v = 0; v < 2 * P; ++v) {
    const Isa::Vector start = Isa::load(bias + v * Isa::kWidth);
    for (int r = 0; r < R; ++r) sums[r][v] = start;
  }
  for (std::int64_t s = 0; s < steps; ++s) {
    for (std::int64_t pair = 0; pair < kStepK / 2; ++pair) {
      const std::uint16_t* line = b + s * kStepElements + pair * 2 * kTileColumns;
      const Isa::A* column = a + s * kStepK + pair * 2;
#pragma GCC unroll 8
      for (int v = 0; v < 2 * P; ++v) {
        const Isa::Operand operand = Isa::load_b(line + (v / 2) * group_stride + (v % 2) * Isa::kVectorStride);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) sums[r][v] = Isa::add(sums[r][v], column + r * a_stride, operand);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < 2 * P; ++v) Isa::store(out + (r * 2 * P + v) * Isa::kWidth, sums[r][v]);
  }
}

using Multiply = void (*)(const Isa::A*, std::int64_t, const std::uint16_t*, std::int64_t, std::int64_t, const float*, float*);

// By rows - 1. Few rows take several groups of columns at once: one chain of additions alone would wait for its latency.
constexpr Multiply kMultiply[] = {
    multiply<1, 1>,  multiply<2, 1>,  multiply<3, 1>, multiply<4, 1>,
#if !defined(IPEXRUN_KERNEL_ISA_AVX2)
    multiply<5, 1>,  multiply<6, 1>,  multiply<7, 1>, multiply<8, 1>, multiply<9, 1>, multiply<10, 1>,
#endif
#if defined(IPEXRUN_KERNEL_ISA_AVX512_BF16)
    multiply<11, 1>, multiply<12, 1>,
#endif
};
static_assert(sizeof(kMultiply) / sizeof(kMultiply[0]) == Isa::kRows);

void write_rows(const LinearArgs& args, std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns, float* from) {
  const std::int64_t valid = args.n - column < columns ? args.n - column : columns;
  if (args.epilogue.any()) finish_rows(args.epilogue, row, rows, column, valid, from, columns);
  for (std::int64_t r = 0; r < rows; ++r, from += columns) {
    const std::int64_t at = (row + r) * args.ldc + column;
    if (args.c_dtype == DType::kF32) {
      __builtin_memcpy(static_cast<float*>(args.c) + at, from, static_cast<std::size_t>(valid) * 4);
    } else {
      std::uint16_t* to = static_cast<std::uint16_t*>(args.c) + at;
      for (std::int64_t n = 0; n < valid; ++n) to[n] = bf16_from_f32(from[n]);
    }
  }
}

void load_bias(const LinearArgs& args, std::int64_t column, std::int64_t columns, float* to) {
  for (std::int64_t n = 0; n < columns; ++n) {
    if (args.bias == nullptr || column + n >= args.n) {
      to[n] = 0.0f;
    } else if (args.bias_dtype == DType::kF32) {
      to[n] = static_cast<const float*>(args.bias)[column + n];
    } else {
      to[n] = bf16_to_f32(static_cast<const std::uint16_t*>(args.bias)[column + n]);
    }
  }
}

std::int64_t row_bytes(const LinearArgs& args) { return steps_of(args.k) * kStepK * static_cast<std::int64_t>(sizeof(Isa::A)); }

/// Rows of A that are copied at a time: half of L2.
std::int64_t row_block_of(const LinearArgs& args, const LinearBlock& block) {
  const std::int64_t rows = block.row_end - block.row_begin;
  std::int64_t most = block.l2_bytes / 2 / row_bytes(args) / Isa::kRows * Isa::kRows;
  if (most < Isa::kRows) most = Isa::kRows;
  return rows < most ? rows : most;
}

constexpr int kFewRows = 1;
constexpr int kGroupsOfFewRows = 4;

/// Columns of a panel group for rows [row, row + rows), whose converted A is `a`.
void run_columns(const LinearArgs& args, const Isa::A* a, std::int64_t row, std::int64_t rows, const std::uint16_t* b,
                 std::int64_t column) {
  const std::int64_t steps = steps_of(args.k);
  const std::int64_t stride = steps * kStepK;
  alignas(64) float bias[kColumnsAtOnce];
  alignas(64) float out[Isa::kRows * kColumnsAtOnce];
  load_bias(args, column, kColumnsAtOnce, bias);
  for (std::int64_t r = 0; r < rows; r += Isa::kRows) {
    const std::int64_t here = rows - r < Isa::kRows ? rows - r : Isa::kRows;
    kMultiply[here - 1](a + r * stride, stride, b, 0, steps, bias, out);
    write_rows(args, row + r, here, column, kColumnsAtOnce, out);
  }
}

}  // namespace

std::size_t linear_scratch_bytes(const LinearArgs& args, const LinearBlock& block) {
  return static_cast<std::size_t>(row_block_of(args, block) * row_bytes(args));
}

void linear(const LinearArgs& args, const LinearBlock& block, void* scratch) {
  auto* a = static_cast<Isa::A*>(scratch);
  const auto* packed = static_cast<const std::uint16_t*>(args.packed_b);
  const std::int64_t steps = steps_of(args.k);
  const std::int64_t row_block = row_block_of(args, block);
  for (std::int64_t row = block.row_begin; row < block.row_end; row += row_block) {
    const std::int64_t rows = block.row_end - row < row_block ? block.row_end - row : row_block;
    for (std::int64_t r = 0; r < rows; ++r) {
      const char* from = static_cast<const char*>(args.a) + (row + r) * args.lda * (args.a_dtype == DType::kF32 ? 4 : 2);
      Isa::convert_row(from, args.a_dtype, args.k, a + r * steps * kStepK);
    }
    std::int64_t panel = block.panel_begin;
    if (rows <= kFewRows && Isa::kTilesAtOnce == 2) {
      constexpr std::int64_t kWide = kGroupsOfFewRows * kPanelColumns;
      alignas(64) float bias[kWide];
      alignas(64) float out[kWide];
      for (; panel + kGroupsOfFewRows <= block.panel_end; panel += kGroupsOfFewRows) {
        load_bias(args, panel * kPanelColumns, kWide, bias);
        multiply<kFewRows, kGroupsOfFewRows>(a, 0, packed + panel * steps * kStepElements, steps * kStepElements, steps, bias, out);
        write_rows(args, row, rows, panel * kPanelColumns, kWide, out);
      }
    }
    for (; panel < block.panel_end; ++panel) {
      for (int half = 0; half < 2 / Isa::kTilesAtOnce; ++half) {
        const std::int64_t column = panel * kPanelColumns + half * kTileColumns;
        if (column >= args.n) break;
        run_columns(args, a, row, rows, packed + panel * steps * kStepElements + half * kTileElements, column);
      }
    }
  }
}

}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
