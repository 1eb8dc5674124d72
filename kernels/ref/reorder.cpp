// The truth of reorder: one element after the other.
#include "kernels/ref/reorder.h"

#include "kernels/bf16.h"
#include "kernels/dispatch.h"

namespace ipexrun::kernels::ref {
namespace {

template <typename To, typename From>
To converted(From value) {
  if constexpr (sizeof(To) == sizeof(From)) {
    return value;
  } else if constexpr (sizeof(To) == sizeof(float)) {
    return bf16_to_f32(value);
  } else {
    return bf16_from_f32(value);
  }
}

template <typename To, typename From>
void transpose_as(const TransposeBlock& block) {
  const auto* from = static_cast<const From*>(block.from);
  auto* to = static_cast<To*>(block.to);
  for (std::int64_t c = 0; c < block.columns; ++c) {
    for (std::int64_t r = 0; r < block.rows; ++r) to[c * block.to_stride + r] = converted<To>(from[r * block.from_stride + c]);
  }
}

}  // namespace

void transpose(const TransposeBlock& block) {
  const bool to_f32 = block.to_dtype == DType::kF32;
  if (block.from_dtype == DType::kF32) {
    to_f32 ? transpose_as<float, float>(block) : transpose_as<std::uint16_t, float>(block);
  } else {
    to_f32 ? transpose_as<float, std::uint16_t>(block) : transpose_as<std::uint16_t, std::uint16_t>(block);
  }
}

}  // namespace ipexrun::kernels::ref
