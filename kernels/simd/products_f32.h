// How simd/attention.cpp multiplies: a word is one fp32. Include after floats_*.h; products_bf16.h is the other way.
#pragma once

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

struct Products {
  static constexpr std::int64_t kPerWord = 1;  ///< elements of a word
#if defined(IPEXRUN_KERNEL_ISA_AVX2)
  static constexpr int kVectors = 2;  ///< of a tile: 12 sums, 2 operands and a broadcast in 16 registers
#else
  static constexpr int kVectors = 4;  ///< 24 sums, 4 operands and a broadcast in 32 registers
#endif

  /// sum + word * b
  [[gnu::always_inline]] static Floats::Vector add(Floats::Vector sum, const float* word, Lanes::Vector b) {
    return Floats::fma(Floats::all(*word), Floats::of_bits(b), sum);
  }
  /// Elements i .. i + 2 * lanes of a row of words.
  [[gnu::always_inline]] static void put(float* row, std::int64_t i, Floats::Vector first, Floats::Vector second) {
    Lanes::store(row + i, Floats::bits_of(first));
    Lanes::store(row + i + Lanes::kCount, Floats::bits_of(second));
  }
};

}  // namespace
}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
