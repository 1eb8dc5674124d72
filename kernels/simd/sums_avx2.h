// The sums of 8 vectors, for the scores of four rows with two keys.
#pragma once

#include <immintrin.h>

namespace ipexrun::kernels::avx2 {
namespace {

struct Sums {
  static constexpr int kKeys = 2;
  /// Which vector of() wants the products of a row with a key in; their sum is lane kKeys * query + key of the result.
  static constexpr int place(int query, int key) { return 2 * query + key; }

  [[gnu::always_inline]] static __m256 of(const __m256 (&v)[8]) {
    const __m256 low = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
    const __m256 high = _mm256_hadd_ps(_mm256_hadd_ps(v[4], v[5]), _mm256_hadd_ps(v[6], v[7]));
    return _mm256_add_ps(_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31));
  }
};

}  // namespace
}  // namespace ipexrun::kernels::avx2
