// Sums of products in doubles, one number after the other.
#include "kernels/ref/linear_int8.h"

#include "kernels/ref/element.h"

namespace ipexrun::kernels::ref {

void int8_dot(const float* a, std::int64_t lda, std::int64_t rows, const std::int8_t* b, std::int64_t ldb, std::int64_t columns,
              std::int64_t k, float* sums) {
  constexpr std::int64_t kSumsOfRow = 4;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      double sum = 0;
      for (std::int64_t i = 0; i < k; ++i) sum += static_cast<double>(a[r * lda + i]) * static_cast<double>(b[c * ldb + i]);
      sums[r * kSumsOfRow + c] = static_cast<float>(sum);
    }
  }
}

void int8_finish(const float* sums, const float* scales, std::int64_t n, DType dtype, void* to) {
  for (std::int64_t i = 0; i < n; ++i) put(to, dtype, i, static_cast<double>(sums[i]) * static_cast<double>(scales[i]));
}

}  // namespace ipexrun::kernels::ref
