// Sums of products in doubles, one weight after the other.
#include "kernels/ref/linear_int4.h"

#include "kernels/bf16.h"

namespace ipexrun::kernels::ref {

void int4_dot(const LinearInt4Args& args, std::int64_t block, std::int64_t row, std::int64_t rows, const float* /*sums*/) {
  const std::uint8_t* bytes = args.b + block * args.k * (kInt4Columns / 2);
  for (std::int64_t r = row; r < row + rows; ++r) {
    for (std::int64_t column = 0; column < kInt4Columns; ++column) {
      double sum = 0;
      for (std::int64_t i = 0; i < args.k; ++i) {
        const std::uint16_t* pair = args.scales_and_zeros + ((i / args.group) * args.n + block * kInt4Columns + column) * 2;
        const int byte = bytes[i * (kInt4Columns / 2) + column % 32];
        const int q = column < 32 ? byte & 15 : byte >> 4;
        const double weight = (q - 8) * static_cast<double>(bf16_to_f32(pair[0])) + static_cast<double>(bf16_to_f32(pair[1]));
        sum += static_cast<double>(bf16_to_f32(args.a[r * args.lda + i])) * weight;
      }
      args.c[r * args.ldc + block * kInt4Columns + column] = bf16_from_f32(static_cast<float>(sum));
    }
  }
}

}  // namespace ipexrun::kernels::ref
