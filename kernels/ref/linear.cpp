// The truth: the operands rounded to bf16, every product and sum in double, one rounding to fp32 and, for a bf16 C, one more.
// Any machine runs it, and the tests hold all other variants against it.
#include "kernels/ref/linear.h"

#include "kernels/bf16.h"
#include "kernels/dispatch.h"
#include "kernels/packed.h"
#include "kernels/ref/activation.h"
#include "kernels/ref/element.h"
#include "kernels/ref/windows.h"

namespace ipexrun::kernels::ref {

double finished(const Epilogue& epilogue, std::int64_t row, std::int64_t column, double sum) {
  const auto unary = [&epilogue](double x) {
    if (epilogue.unary == Unary::kNone) return x;
    if (epilogue.unary == Unary::kRelu) return x < 0 ? 0.0 : x;
    return activation_of(kernels::activation_of(epilogue.unary), x);
  };
  if (epilogue.binary == Binary::kNone) return unary(sum);
  const double other = get(epilogue.other, epilogue.other_dtype, row * epilogue.ld_other + column);
  const auto combine = [&epilogue, other](double x) { return epilogue.binary == Binary::kAdd ? x + other : x * other; };
  return epilogue.binary_first ? unary(combine(sum)) : combine(unary(sum));
}

std::size_t linear_scratch_bytes(const LinearArgs&, const LinearBlock&) { return 0; }

void linear(const LinearArgs& args, const LinearBlock& block, void*) {
  const auto* packed = static_cast<const std::uint16_t*>(args.packed_b);
  const std::int64_t last = block.panel_end * kPanelColumns;
  const std::int64_t column_end = last < args.n ? last : args.n;
  for (std::int64_t m = block.row_begin; m < block.row_end; ++m) {
    for (std::int64_t n = block.panel_begin * kPanelColumns; n < column_end; ++n) {
      const std::uint16_t* panel = packed + n / kPanelColumns * steps_of(args.k) * kStepElements;
      double sum = args.bias != nullptr ? get(args.bias, args.bias_dtype, n) : 0.0;
      for (std::int64_t k = 0; k < args.k; ++k) {
        const std::int64_t at = args.windows == nullptr ? m * args.lda + k : window_element(*args.windows, m, k);
        const float a = at < 0 ? 0.0f : bf16_to_f32(bf16_from_f32(static_cast<float>(get(args.a, args.a_dtype, at))));
        const float b = bf16_to_f32(panel[packed_offset(k, n % kPanelColumns)]);
        sum += static_cast<double>(a) * static_cast<double>(b);
      }
      put(args.c, args.c_dtype, m * args.ldc + n, finished(args.epilogue, m, n, sum));
    }
  }
}

}  // namespace ipexrun::kernels::ref
