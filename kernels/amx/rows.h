// What surrounds the tile loop: rows of A to bf16 tiles, the bias to fp32, finished fp32 tiles to rows of C.
// Internal linkage, see dispatch.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/amx/next_block.h"
#include "kernels/linear.h"
#include "kernels/packed.h"
#include "kernels/simd/epilogue.h"

namespace ipexrun::kernels::amx {

/// The lowest `count` bits set; count <= 0 gives none, count >= 16 (32) all.
static inline __mmask16 mask16(std::int64_t count) {
  return count >= 16 ? static_cast<__mmask16>(0xffff) : count <= 0 ? static_cast<__mmask16>(0) : static_cast<__mmask16>((1u << count) - 1u);
}
static inline __mmask32 mask32(std::int64_t count) { return count >= 32 ? 0xffffffffu : count <= 0 ? 0u : (1u << count) - 1u; }

/// bf16 as fp32.
static inline __attribute__((always_inline)) __m512 widened(__m256i halves) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

/// 32 elements of a row of A as bf16; past `valid` of them zeros, and their memory is not touched.
static inline __m512i load_step(const void* row, DType dtype, std::int64_t k, std::int64_t valid) {
  if (dtype == DType::kBf16) return _mm512_maskz_loadu_epi16(mask32(valid), static_cast<const std::uint16_t*>(row) + k);
  const float* from = static_cast<const float*>(row) + k;
  const __m512 low = _mm512_maskz_loadu_ps(mask16(valid), from);
  const __m512 high = valid > 16 ? _mm512_maskz_loadu_ps(mask16(valid - 16), from + 16) : _mm512_setzero_ps();
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

/// Rows [row, row + rows) of A, `count` steps of K from `first` on, into tiles of 16 rows x 32: tile t of a group of 16 rows at t KiB.
/// Rows from `rows` to `padded` become zeros (their products are never stored).
static inline void pack_rows(const LinearArgs& args, std::int64_t row, std::int64_t rows, std::int64_t padded, std::int64_t first,
                             std::int64_t count, char* to) {
  const std::int64_t steps = steps_of(args.k);
  const std::int64_t end = first + count;
  const std::int64_t whole = args.k / kStepK < end ? args.k / kStepK : end;
  const std::int64_t element = args.a_dtype == DType::kF32 ? 4 : 2;
  for (std::int64_t r = 0; r < padded; ++r) {
    char* line = to + (r / 16) * steps * 1024 + (r % 16) * 64;
    std::int64_t s = first;
    if (r >= rows) {
      for (; s < end; ++s) _mm512_store_si512(line + s * 1024, _mm512_setzero_si512());
      continue;
    }
    const char* from = static_cast<const char*>(args.a) + (row + r) * args.lda * element;
    if (args.a_dtype == DType::kF32) {
      for (; s < whole; ++s) {
        const float* values = reinterpret_cast<const float*>(from) + s * kStepK;
        _mm512_store_si512(line + s * 1024, (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(values + 16), _mm512_loadu_ps(values)));
      }
    } else {
      for (; s < whole; ++s) _mm512_store_si512(line + s * 1024, _mm512_loadu_si512(from + s * 64));
    }
    if (s < end) _mm512_store_si512(line + s * 1024, load_step(from, args.a_dtype, s * kStepK, args.k - s * kStepK));
  }
}

/// Bias of the 32 columns of a panel as fp32, zeros where there is none.
static inline void load_bias(const LinearArgs& args, std::int64_t panel, float* to) {
  const std::int64_t column = panel * kPanelColumns;
  const std::int64_t valid = args.bias == nullptr ? 0 : args.n - column;
  __m512 low = _mm512_setzero_ps();
  __m512 high = _mm512_setzero_ps();
  if (valid > 0 && args.bias_dtype == DType::kF32) {
    const float* from = static_cast<const float*>(args.bias) + column;
    low = _mm512_maskz_loadu_ps(mask16(valid), from);
    if (valid > 16) high = _mm512_maskz_loadu_ps(mask16(valid - 16), from + 16);
  } else if (valid > 0) {
    const __m512i both = _mm512_maskz_loadu_epi16(mask32(valid), static_cast<const std::uint16_t*>(args.bias) + column);
    low = widened(_mm512_castsi512_si256(both));
    high = widened(_mm512_extracti64x4_epi64(both, 1));
  }
  _mm512_store_ps(to, low);
  _mm512_store_ps(to + 16, high);
}

/// A finished block of C, 32 x 32 sums in fp32 (128 bytes a row), that waits to become rows of C.
struct Pending {
  char* sums = nullptr;
  char* c = nullptr;
  std::int64_t stride_bytes = 0;
  std::int64_t rows = 0;  ///< not yet written
  __mmask32 columns = 0;  ///< inside C
  DType dtype = DType::kF32;
  const Epilogue* epilogue = nullptr;
  std::int64_t row = 0;  ///< of C, with `column` where the sums belong
  std::int64_t column = 0;
  void (*write)(Pending&, std::int64_t) = nullptr;  ///< of rows with an epilogue, where one fits
  NextBlock next{};
  std::int64_t c_ahead = 0;  ///< the same in bytes of C
};

/// Up to `count` rows of 32 sums, finished in registers: bf16 in C and in what is added, an addition before a relu, or one of them. What
/// the strip below will write and add is fetched meanwhile.
template <bool kOther, bool kRelu>
[[gnu::noinline]] static void write_finished(Pending& pending, std::int64_t count) {
  const std::int64_t rows = pending.rows < count ? pending.rows : count;
  const std::int64_t other_stride = kOther ? pending.epilogue->ld_other * 2 : 0;
  const std::int64_t other_ahead = kOther ? pending.next.rows * other_stride + pending.next.columns * 2 : 0;
  const std::int64_t c_ahead = pending.c_ahead;
  const char* other = nullptr;
  if constexpr (kOther) other = static_cast<const char*>(pending.epilogue->other) + pending.row * other_stride + pending.column * 2;
  for (std::int64_t r = 0; r < rows; ++r) {
    __m512 left = _mm512_load_ps(pending.sums);
    __m512 right = _mm512_load_ps(pending.sums + 64);
    if constexpr (kOther) {
      const __m512i both = _mm512_loadu_si512(other);
      left = _mm512_add_ps(left, widened(_mm512_castsi512_si256(both)));
      right = _mm512_add_ps(right, widened(_mm512_extracti64x4_epi64(both, 1)));
      _mm_prefetch(other + other_ahead, _MM_HINT_T1);
      other += other_stride;
    }
    if constexpr (kRelu) {  // 0 first: NaN is kept
      left = _mm512_max_ps(_mm512_setzero_ps(), left);
      right = _mm512_max_ps(_mm512_setzero_ps(), right);
    }
    _mm512_storeu_si512(pending.c, (__m512i)_mm512_cvtne2ps_pbh(right, left));
    prefetch_to_write(pending.c + c_ahead);
    pending.sums += 128;
    pending.c += pending.stride_bytes;
  }
  pending.row += rows;
  pending.rows -= rows;
}

/// The one that fits a block, or null.
static inline auto writer_for(const Epilogue& epilogue, DType c_dtype, __mmask32 columns) -> void (*)(Pending&, std::int64_t) {
  const bool relu = epilogue.unary == Unary::kRelu;
  if (c_dtype != DType::kBf16 || columns != 0xffffffffu || (!relu && epilogue.unary != Unary::kNone)) return nullptr;
  if (epilogue.binary == Binary::kNone) return relu ? write_finished<false, true> : nullptr;
  if (epilogue.binary != Binary::kAdd || epilogue.other_dtype != DType::kBf16 || (relu && !epilogue.binary_first)) return nullptr;
  return relu ? write_finished<true, true> : write_finished<true, false>;
}

/// Writes up to `count` rows. Called between tile products, whose unit is not the one that converts and stores. Where no epilogue follows
/// there is no call either, which would cost the products' loop its registers.
template <bool kEpilogue>
static inline __attribute__((always_inline)) void drain(Pending& pending, std::int64_t count) {
  if constexpr (kEpilogue) {
    if (pending.rows == 0) return;
    if (pending.write != nullptr) return pending.write(pending, count);
    const std::int64_t rows = pending.rows < count ? pending.rows : count;
    const std::int64_t valid = __builtin_popcount(pending.columns);
    finish_rows(*pending.epilogue, pending.row, rows, pending.column, valid, reinterpret_cast<float*>(pending.sums), kPanelColumns);
    pending.row += rows;
  }
  for (; count > 0 && pending.rows > 0; --count, --pending.rows) {
    const __m512 left = _mm512_load_ps(pending.sums);
    const __m512 right = _mm512_load_ps(pending.sums + 64);
    if (pending.dtype == DType::kBf16) {
      _mm512_mask_storeu_epi16(pending.c, pending.columns, (__m512i)_mm512_cvtne2ps_pbh(right, left));
      prefetch_to_write(pending.c + pending.c_ahead);
    } else {
      _mm512_mask_storeu_ps(pending.c, static_cast<__mmask16>(pending.columns), left);
      _mm512_mask_storeu_ps(pending.c + 64, static_cast<__mmask16>(pending.columns >> 16), right);
    }
    pending.sums += 128;
    pending.c += pending.stride_bytes;
  }
}

}  // namespace ipexrun::kernels::amx
