// The scan of topk, one element after the other.
#include "kernels/ref/topk.h"

#include <cmath>

namespace ipexrun::kernels::ref {
namespace {

/// Ordered as the numbers are; NaN above all, -0 as 0.
std::int32_t order_key(float value) {
  if (std::isnan(value)) return INT32_MAX;
  const auto bits = __builtin_bit_cast(std::int32_t, value == 0 ? 0.0f : value);
  return bits >= 0 ? bits : bits ^ INT32_MAX;
}

}  // namespace

std::int64_t topk_collect(const float* from, std::int64_t begin, std::int64_t end, bool largest, std::int32_t bar, std::int64_t* kept,
                          std::int64_t limit, std::int64_t* count) {
  std::int64_t i = begin;
  for (; i < end && *count < limit; ++i) {
    const std::int32_t key = largest ? order_key(from[i]) : ~order_key(from[i]);
    if (key >= bar) kept[(*count)++] = static_cast<std::int64_t>(key) * (std::int64_t{1} << 32) + i;
  }
  return i;
}

}  // namespace ipexrun::kernels::ref
