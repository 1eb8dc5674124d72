// embedding_bag, one element after the other.
#include "kernels/ref/embedding.h"

#include <cmath>

#include "kernels/bf16.h"

namespace ipexrun::kernels::ref {
namespace {

float element(const void* from, DType dtype, std::int64_t i) {
  return dtype == DType::kF32 ? static_cast<const float*>(from)[i] : bf16_to_f32(static_cast<const std::uint16_t*>(from)[i]);
}

/// To nearest, ties away from zero.
float half_up(float value) {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  return std::isnan(value) ? value : __builtin_bit_cast(float, (bits + 0x8000u) & 0xffff0000u);
}

float rounded_sum(const EmbeddingBagArgs& args, float sum) {
  if (args.dtype == DType::kF32) return sum;
  return args.padding < 0 ? half_up(sum) : bf16_to_f32(bf16_from_f32(sum));
}

template <typename Index>
bool bags(const EmbeddingBagArgs& args, std::int64_t bag_begin, std::int64_t bag_end) {
  const auto* indices = static_cast<const Index*>(args.indices);
  const auto* offsets = static_cast<const Index*>(args.offsets);
  for (std::int64_t bag = bag_begin; bag < bag_end; ++bag) {
    const std::int64_t begin = offsets[bag];
    const std::int64_t end = bag + 1 < args.bags || args.has_end ? static_cast<std::int64_t>(offsets[bag + 1]) : args.count;
    if (begin < 0 || end < begin || end > args.count) return false;
    Index size = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      if (indices[i] < 0 || indices[i] >= args.rows) return false;
      size = static_cast<Index>(size + (indices[i] != args.padding));
      if (args.bag_of != nullptr) static_cast<Index*>(args.bag_of)[i] = static_cast<Index>(bag);
    }
    if (args.sizes != nullptr) static_cast<Index*>(args.sizes)[bag] = size;
    for (std::int64_t column = 0; column < args.columns; ++column) {
      float result = 0;
      Index place = 0;
      bool first = true;
      for (std::int64_t i = begin; i < end; ++i) {
        if (indices[i] == args.padding) continue;
        const float value = element(args.table, args.dtype, indices[i] * args.row_stride + column);
        if (args.mode != BagMode::kMax) {
          result = std::fma(value, args.weights == nullptr ? 1.0f : element(args.weights, args.dtype, i), result);
        } else if (first || value > result) {
          result = value;
          place = indices[i];
        }
        first = false;
      }
      if (args.mode != BagMode::kMax) result = rounded_sum(args, result);
      if (args.mode == BagMode::kMean) {
        const auto divisor = static_cast<float>(size > 0 ? size : 1);
        result /= args.dtype == DType::kF32 ? divisor : bf16_to_f32(bf16_from_f32(divisor));
      }
      const std::int64_t at = bag * args.columns + column;
      if (args.mode == BagMode::kMax) static_cast<Index*>(args.places)[at] = place;
      args.dtype == DType::kF32 ? void(static_cast<float*>(args.to)[at] = result)
                                : void(static_cast<std::uint16_t*>(args.to)[at] = bf16_from_f32(result));
    }
  }
  return true;
}

}  // namespace

bool embedding_bags(const EmbeddingBagArgs& args, std::int64_t bag_begin, std::int64_t bag_end) {
  return args.wide ? bags<std::int64_t>(args, bag_begin, bag_end) : bags<std::int32_t>(args, bag_begin, bag_end);
}

}  // namespace ipexrun::kernels::ref
