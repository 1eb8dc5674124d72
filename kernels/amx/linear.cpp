// linear on AMX: blocks.h over tiles of bf16. Sums start from the bias.
#include "kernels/amx/linear.h"

#include "kernels/amx/blocks.h"
#include "kernels/amx/rows.h"

namespace ipexrun::kernels::amx {
namespace {

/// What multiplies, with what follows the product or without.
template <bool kEpilogue>
struct Pairs {
  using Pending = amx::Pending;
  const LinearArgs& args;
  std::int64_t first_panel;
  float* bias;  // of the block's panels
  bool whole;

  template <int kC, int kA, int kB>
  [[gnu::always_inline]] static void multiply() {
    tile_multiply<kC, kA, kB>();
  }

  [[gnu::always_inline]] static void drain(Pending& pending, std::int64_t count) { amx::drain<kEpilogue>(pending, count); }

  [[nodiscard]] char* start(std::int64_t panel) const { return reinterpret_cast<char*>(bias + (panel - first_panel) * kPanelColumns); }

  [[nodiscard]] Rows a(std::int64_t row, std::int64_t step) const {
    const std::int64_t element = args.a_dtype == DType::kF32 ? 4 : 2;
    return {static_cast<const char*>(args.a) + (row * args.lda + step * kStepK) * element, args.lda * element, kStepK * element};
  }

  [[nodiscard]] bool lies() const {
    return args.a_dtype == DType::kBf16 && args.lda == args.k && args.k % kStepK == 0 && reinterpret_cast<std::uintptr_t>(args.a) % 64 == 0;
  }

  void pack(std::int64_t row, std::int64_t rows, std::int64_t padded, std::int64_t first, std::int64_t count, char* to) const {
    pack_rows(args, row, rows, padded, first, count, to);
  }

  [[nodiscard]] Pending pending(char* sums, std::int64_t row, std::int64_t rows, std::int64_t panel, NextBlock next) const {
    const std::int64_t element = args.c_dtype == DType::kF32 ? 4 : 2;
    const std::int64_t column = panel * kPanelColumns;
    char* c = static_cast<char*>(args.c) + (row * args.ldc + column) * element;
    const __mmask32 columns = mask32(args.n - column);
    return {sums,
            c,
            args.ldc * element,
            rows,
            columns,
            args.c_dtype,
            &args.epilogue,
            row,
            column,
            kEpilogue ? writer_for(args.epilogue, args.c_dtype, columns) : nullptr,
            next,
            (next.rows * args.ldc + next.columns) * element};
  }
};

}  // namespace

std::size_t linear_scratch_bytes(const LinearArgs& args, const LinearBlock& block) {
  const std::int64_t bias_bytes = (block.panel_end - block.panel_begin) * kPanelColumns * 4;
  return static_cast<std::size_t>(blocks_bytes(steps_of(args.k), block) + bias_bytes);
}

void linear(const LinearArgs& args, const LinearBlock& block, void* scratch) {
  const std::int64_t steps = steps_of(args.k);
  auto* bias = reinterpret_cast<float*>(static_cast<char*>(scratch) + blocks_bytes(steps, block));
  for (std::int64_t panel = block.panel_begin; panel < block.panel_end; ++panel) {
    load_bias(args, panel, bias + (panel - block.panel_begin) * kPanelColumns);
  }
  if (args.epilogue.any()) {
    run_blocks(Pairs<true>{args, block.panel_begin, bias, false}, steps, block, scratch);
  } else {
    run_blocks(Pairs<false>{args, block.panel_begin, bias, args.c_dtype == DType::kF32}, steps, block, scratch);
  }
}

}  // namespace ipexrun::kernels::amx
