// Sums of linear_s8 to rows of C, a row of a panel at a time; compiled for avx2 and avx512.
#include "kernels/activation.h"
#include "kernels/simd/activation_kinds.h"
#include "kernels/simd/linear_s8.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

constexpr int kCount = Lanes::kCount;
constexpr int kVectors = static_cast<int>(kPanelColumns) / kCount;
using Row = Vector[kVectors];

#if defined(IPEXRUN_KERNEL_ISA_AVX512)
[[gnu::always_inline]] inline Vector to_floats(Lanes::Vector v) { return _mm512_cvtepi32_ps(v); }
[[gnu::always_inline]] inline Lanes::Vector to_integers(Vector v) { return _mm512_cvtps_epi32(v); }
[[gnu::always_inline]] inline Vector load_bf16(const std::uint16_t* from) {
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return Floats::of_bits(Lanes::shift_left_16(_mm512_cvtepu16_epi32(halves)));
}
/// The lower halves, or bytes, of all lanes of a row.
[[gnu::always_inline]] inline void store_halves(void* to, const Lanes::Vector (&row)[kVectors]) {
  for (int v = 0; v < kVectors; ++v)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(static_cast<char*>(to) + v * 32), _mm512_cvtepi32_epi16(row[v]));
}
[[gnu::always_inline]] inline void store_bytes(void* to, const Lanes::Vector (&row)[kVectors]) {
  for (int v = 0; v < kVectors; ++v)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(static_cast<char*>(to) + v * 16), _mm512_cvtepi32_epi8(row[v]));
}
#else
[[gnu::always_inline]] inline Vector to_floats(Lanes::Vector v) { return _mm256_cvtepi32_ps(v); }
[[gnu::always_inline]] inline Lanes::Vector to_integers(Vector v) { return _mm256_cvtps_epi32(v); }
[[gnu::always_inline]] inline Vector load_bf16(const std::uint16_t* from) {
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return Floats::of_bits(Lanes::shift_left_16(_mm256_cvtepu16_epi32(halves)));
}
[[gnu::always_inline]] inline void store_halves(void* to, const Lanes::Vector (&row)[kVectors]) {
  for (int v = 0; v < kVectors; v += 2) {
    const __m256i both = _mm256_packus_epi32(row[v], row[v + 1]);
    Lanes::store(static_cast<char*>(to) + v * 16, _mm256_permute4x64_epi64(both, 0xd8));
  }
}
[[gnu::always_inline]] inline void store_bytes(void* to, const Lanes::Vector (&row)[kVectors]) {
  const __m256i byte = Lanes::all(0xff);
  const __m256i low = _mm256_packus_epi32(_mm256_and_si256(row[0], byte), _mm256_and_si256(row[1], byte));
  const __m256i high = _mm256_packus_epi32(_mm256_and_si256(row[2], byte), _mm256_and_si256(row[3], byte));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  Lanes::store(to, _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), order));
}
#endif

struct None {
  [[gnu::always_inline]] static Vector run(Vector x) { return x; }
};
struct Relu {
  [[gnu::always_inline]] static Vector run(Vector x) { return Floats::at_least(Floats::all(0.0f), x); }
};

/// What all rows have in common.
struct Finish {
  const LinearS8Args& args;
  const PanelS8& columns;
  std::int64_t column;
  std::int64_t valid;  // columns inside C
};

std::int64_t c_bytes(LinearS8Output type) { return type == LinearS8Output::kBf16 ? 2 : type <= LinearS8Output::kF32 ? 4 : 1; }

/// Adds a row of the residual.
void add_residual(const Finish& finish, std::int64_t m, Row& row) {
  const LinearS8Args& args = finish.args;
  const std::int64_t element = bytes_of(args.residual_dtype);
  const char* from = static_cast<const char*>(args.residual) + (m * args.ldr + finish.column) * element;
  alignas(64) char part[kPanelColumns * 4] = {};
  if (finish.valid < kPanelColumns) {
    __builtin_memcpy(part, from, static_cast<std::size_t>(finish.valid * element));
    from = part;
  }
  for (int v = 0; v < kVectors; ++v) {
    const char* at = from + v * kCount * element;
    const Vector more =
        args.residual_dtype == DType::kF32 ? Floats::of_bits(Lanes::load(at)) : load_bf16(reinterpret_cast<const std::uint16_t*>(at));
    row[v] = Floats::add(row[v], more);
  }
}

/// A whole row of 32 values in C's type.
[[gnu::always_inline]] inline void store_row(const LinearS8Args& args, const Row& row, char* to) {
  if (args.c_type == LinearS8Output::kF32) {
    for (int v = 0; v < kVectors; ++v) Lanes::store(to + v * kCount * 4, Floats::bits_of(row[v]));
    return;
  }
  Lanes::Vector bits[kVectors];
  if (args.c_type == LinearS8Output::kBf16) {
    for (int v = 0; v < kVectors; ++v) bits[v] = Lanes::shift_right_16(Lanes::rounded(Floats::bits_of(row[v])));
    store_halves(to, bits);
    return;
  }
  const int least = args.c_type == LinearS8Output::kU8 ? 0 : -128;
  const Vector low = Floats::all(static_cast<float>(least - args.c_zero));
  const Vector high = Floats::all(static_cast<float>(least + 255 - args.c_zero));
  const Vector inverse = Floats::all(args.c_inverse_scale);
  const Lanes::Vector zero = Lanes::all(args.c_zero);
  for (int v = 0; v < kVectors; ++v) {
    // The bounds as the second operand: that is what a NaN becomes.
    const Vector nearest = Floats::at_least(Floats::nearest(Floats::multiply(row[v], inverse)), low);
    bits[v] = Lanes::add(to_integers(Floats::at_most(nearest, high)), zero);
  }
  store_bytes(to, bits);
}

template <typename Kind>
void run(const Finish& finish, const std::int32_t* sums, std::int64_t row, std::int64_t rows) {
  const LinearS8Args& args = finish.args;
  const std::int64_t element = c_bytes(args.c_type);
  char* to = static_cast<char*>(args.c) + (row * args.ldc + finish.column) * element;
  Row scale;
  Row bias;
  for (int v = 0; v < kVectors; ++v) {
    scale[v] = Floats::of_bits(Lanes::load(finish.columns.scale + v * kCount));
    bias[v] = Floats::of_bits(Lanes::load(finish.columns.bias + v * kCount));
  }
  for (std::int64_t r = 0; r < rows; ++r, sums += kPanelColumns, to += args.ldc * element) {
    const Vector a_scale = Floats::all(args.a_scale == nullptr ? 1.0f : args.a_scale[args.a_scale_per_row ? row + r : 0]);
    Row values;
    for (int v = 0; v < kVectors; ++v)
      values[v] = Floats::fma(to_floats(Lanes::load(sums + v * kCount)), Floats::multiply(a_scale, scale[v]), bias[v]);
    if (args.residual != nullptr) add_residual(finish, row + r, values);
    for (int v = 0; v < kVectors; ++v) values[v] = Kind::run(values[v]);
    if (finish.valid == kPanelColumns) {
      store_row(args, values, to);
    } else {
      alignas(64) char part[kPanelColumns * 4];
      store_row(args, values, part);
      __builtin_memcpy(to, part, static_cast<std::size_t>(finish.valid * element));
    }
  }
}

}  // namespace

void linear_s8_finish(const LinearS8Args& args, std::int64_t panel, const PanelS8& columns, const std::int32_t* sums, std::int64_t row,
                      std::int64_t rows) {
  const std::int64_t column = panel * kPanelColumns;
  const std::int64_t rest = args.n - column;
  const Finish finish{args, columns, column, rest < kPanelColumns ? rest : kPanelColumns};
  if (args.c_type == LinearS8Output::kI32) {
    auto* to = static_cast<std::int32_t*>(args.c) + row * args.ldc + column;
    for (std::int64_t r = 0; r < rows; ++r)
      __builtin_memcpy(to + r * args.ldc, sums + r * kPanelColumns, static_cast<std::size_t>(finish.valid) * 4);
    return;
  }
  switch (args.activation) {
    case LinearS8Activation::kNone:
      return run<None>(finish, sums, row, rows);
    case LinearS8Activation::kRelu:
      return run<Relu>(finish, sums, row, rows);
    case LinearS8Activation::kGelu:
      return run<Gelu>(finish, sums, row, rows);
    case LinearS8Activation::kGeluTanh:
      return run<GeluTanh>(finish, sums, row, rows);
    case LinearS8Activation::kSilu:
      return run<Silu>(finish, sums, row, rows);
  }
}

}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
