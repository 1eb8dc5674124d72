// The truth: every product and sum in double, one rounding to fp32 and, for bf16, one more.
#include "kernels/ref/batched.h"

#include "kernels/ref/element.h"

namespace ipexrun::kernels::ref {
namespace {

double at(const BatchedMatrix& matrix, std::int64_t i, std::int64_t row, std::int64_t column) {
  return get(matrix.data, matrix.dtype, i * matrix.batch + row * matrix.row + column * matrix.column);
}

}  // namespace

void batched(const BatchedArgs& args, std::int64_t begin, std::int64_t end) {
  const auto operand = [&args](double value) {
    return args.bf16_inside ? static_cast<double>(bf16_to_f32(bf16_from_f32(static_cast<float>(value)))) : value;
  };
  for (std::int64_t i = begin; i < end; ++i) {
    for (std::int64_t m = 0; m < args.m; ++m) {
      for (std::int64_t n = 0; n < args.n; ++n) {
        double sum = 0;
        for (std::int64_t k = 0; k < args.k; ++k) sum += operand(at(args.a, i, m, k)) * operand(at(args.b, i, k, n));
        sum *= static_cast<double>(args.alpha);
        if (args.c.data != nullptr && args.beta != 0) sum += static_cast<double>(args.beta) * at(args.c, i, m, n);
        put(args.out, args.out_dtype, i * args.out_batch + m * args.ldo + n, sum);
      }
    }
  }
}

}  // namespace ipexrun::kernels::ref
