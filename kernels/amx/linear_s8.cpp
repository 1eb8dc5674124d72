// linear_s8 on AMX: blocks.h over tiles of bytes. Sums start from what the zero of A takes off.
#include "kernels/amx/linear_s8.h"

#include "kernels/amx/blocks.h"
#include "kernels/simd/linear_s8.h"

namespace ipexrun::kernels::amx_int8 {
namespace {

/// What multiplies A of one signedness.
template <bool kSigned>
struct Bytes {
  struct Pending {
    const LinearS8Args* args = nullptr;
    const PanelS8* columns = nullptr;
    const std::int32_t* sums = nullptr;
    std::int64_t panel = 0;
    std::int64_t row = 0;
    std::int64_t rows = 0;
  };
  const LinearS8Args& args;
  std::int64_t first_panel;
  const PanelS8* panels;  // of the block
  bool whole;

  template <int kC, int kA, int kB>
  [[gnu::always_inline]] static void multiply() {
    tile_multiply_bytes<kSigned, kC, kA, kB>();
  }

  [[gnu::always_inline]] static void drain(Pending& pending, std::int64_t count) {
    if (pending.rows == 0) return;
    const std::int64_t rows = at_most(pending.rows, count);
    avx512::linear_s8_finish(*pending.args, pending.panel, *pending.columns, pending.sums, pending.row, rows);
    pending.sums += rows * kPanelColumns;
    pending.row += rows;
    pending.rows -= rows;
  }

  [[nodiscard]] char* start(std::int64_t panel) const {
    return const_cast<char*>(reinterpret_cast<const char*>(panels[panel - first_panel].start));
  }

  [[nodiscard]] Rows a(std::int64_t row, std::int64_t step) const {
    return {static_cast<const char*>(args.a) + row * args.lda + step * kStepKS8, args.lda, kStepKS8};
  }

  [[nodiscard]] bool lies() const {
    return args.lda == args.k && args.k % kStepKS8 == 0 && reinterpret_cast<std::uintptr_t>(args.a) % 64 == 0;
  }

  void pack(std::int64_t row, std::int64_t rows, std::int64_t padded, std::int64_t first, std::int64_t count, char* to) const {
    const std::int64_t steps = steps_of_s8(args.k);
    const std::int64_t end = first + count;
    const std::int64_t whole_steps = at_most(args.k / kStepKS8, end);
    for (std::int64_t r = 0; r < padded; ++r) {
      char* line = to + (r / 16) * steps * kTileBytes + (r % 16) * 64;
      std::int64_t s = first;
      if (r >= rows) {
        for (; s < end; ++s) _mm512_store_si512(line + s * kTileBytes, _mm512_setzero_si512());
        continue;
      }
      const char* from = static_cast<const char*>(args.a) + (row + r) * args.lda;
      for (; s < whole_steps; ++s) _mm512_store_si512(line + s * kTileBytes, _mm512_loadu_si512(from + s * 64));
      if (s < end) {
        const __mmask64 rest = _bzhi_u64(~0ull, static_cast<unsigned>(args.k % kStepKS8));
        _mm512_store_si512(line + s * kTileBytes, _mm512_maskz_loadu_epi8(rest, from + s * 64));
      }
    }
  }

  [[nodiscard]] Pending pending(const char* sums, std::int64_t row, std::int64_t rows, std::int64_t panel, NextBlock /*next*/) const {
    return {&args, panels + (panel - first_panel), reinterpret_cast<const std::int32_t*>(sums), panel, row, rows};
  }
};

}  // namespace

std::size_t linear_s8_scratch_bytes(const LinearS8Args& args, const LinearBlock& block) {
  return static_cast<std::size_t>(blocks_bytes(steps_of_s8(args.k), block));
}

void linear_s8(const LinearS8Args& args, const LinearBlock& block, const PanelS8* panels, void* scratch) {
  const bool whole = args.c_type == LinearS8Output::kI32;
  if (args.a_signed) {
    run_blocks(Bytes<true>{args, block.panel_begin, panels, whole}, steps_of_s8(args.k), block, scratch);
  } else {
    run_blocks(Bytes<false>{args, block.panel_begin, panels, whole}, steps_of_s8(args.k), block, scratch);
  }
}

}  // namespace ipexrun::kernels::amx_int8
