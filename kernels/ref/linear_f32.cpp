// The truth: every product and sum in double, one rounding to fp32 and, for fp16, one more.
#include "kernels/ref/linear_f32.h"

#include "kernels/ref/convert.h"
#include "kernels/ref/linear.h"
#include "kernels/ref/windows.h"

namespace ipexrun::kernels::ref {
namespace {

double number(const void* data, bool half, std::int64_t i) {
  return static_cast<double>(half ? f16_to_f32(static_cast<const std::uint16_t*>(data)[i]) : static_cast<const float*>(data)[i]);
}

/// Of A, in row m and column k.
double operand(const LinearF32Args& args, std::int64_t m, std::int64_t k) {
  if (args.windows == nullptr) return number(args.a, args.half, m * args.lda + k);
  const std::int64_t at = window_element(*args.windows, m, k);
  return at < 0 ? 0 : number(args.a, args.half, at);
}

}  // namespace

std::size_t linear_f32_scratch_bytes(const LinearF32Args&, const LinearBlock&) { return 0; }

void linear_f32(const LinearF32Args& args, const LinearBlock& block, void*) {
  const std::int64_t last = block.panel_end * kPanelColumns;
  const std::int64_t column_end = last < args.n ? last : args.n;
  for (std::int64_t m = block.row_begin; m < block.row_end; ++m) {
    for (std::int64_t n = block.panel_begin * kPanelColumns; n < column_end; ++n) {
      const char* panel = static_cast<const char*>(args.packed_b) + n / kPanelColumns * panel_bytes_f32(args.k, args.half);
      double sum = args.bias != nullptr ? number(args.bias, args.half, n) : 0.0;
      for (std::int64_t k = 0; k < args.k; ++k) {
        const std::int64_t at = args.half ? packed_offset(k, n % kPanelColumns) : k * kPanelColumns + n % kPanelColumns;
        sum += operand(args, m, k) * number(panel, args.half, at);
      }
      const auto rounded = static_cast<float>(finished(args.epilogue, m, n, sum));
      if (args.half) {
        static_cast<std::uint16_t*>(args.c)[m * args.ldc + n] = f16_from_f32(rounded);
      } else {
        static_cast<float*>(args.c)[m * args.ldc + n] = rounded;
      }
    }
  }
}

}  // namespace ipexrun::kernels::ref
