// Scores and products of a block of keys and a block of rows, keys by rows, to weights and their gradients. Include after
// attention_load.h, exp2.h and attention_weigh.h.
#pragma once

#include <cstdint>

#include "kernels/attention_grad.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

alignas(64) constexpr float kRowNumbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/// The mask of kLanes rows from `row` on and `keys` keys from `key` on, keys by rows, `pitch` apart. Rows behind the last get its mask.
inline void turn_mask(const AttentionArgs& args, const Head& head, std::int64_t row, std::int64_t key, std::int64_t keys, float* to,
                      std::int64_t pitch) {
  for (std::int64_t k = 0; k < keys; k += kLanes) {
    Lanes::Vector v[kLanes];
    for (std::int64_t r = 0; r < kLanes; ++r) {
      const MaskRow from = mask_row(args.mask, head, least(row + r, args.rows - 1), key + k);
      const auto* f32 = static_cast<const float*>(from.data);
      const auto* bf16 = static_cast<const std::uint16_t*>(from.data);
      if (from.repeated) {
        v[r] = Floats::bits_of(Floats::all(from.dtype == DType::kF32 ? *f32 : bf16_to_f32(*bf16)));
      } else {
        v[r] = from.dtype == DType::kF32 ? load_some(f32, keys - k) : load_some(bf16, keys - k);
      }
    }
    Lanes::transpose(v);
    for (std::int64_t i = 0; i < least(kLanes, keys - k); ++i) Lanes::store(to + (k + i) * pitch, v[i]);
  }
}

/// What kLanes rows bring.
struct GradRows {
  Floats::Vector lse;    ///< +inf where there is no row
  Floats::Vector delta;  ///< the sum of the products of the result and its gradient
  Floats::Vector scale;
};

struct Weighed {
  Floats::Vector weight;
  Floats::Vector grad;  ///< of the score
};

[[gnu::always_inline]] inline Weighed weigh_again(const GradRows& rows, Floats::Vector score, Floats::Vector mask, Floats::Vector product) {
  const Floats::Vector scaled = Floats::add(Floats::multiply(score, rows.scale), mask);
  const Floats::Vector weight = power(Floats::subtract(scaled, rows.lse));
  return {weight, Floats::multiply(Floats::multiply(weight, rows.scale), Floats::subtract(product, rows.delta))};
}

/// Zeros for the rows before `key`, which do not see it. `rows` numbers them.
[[gnu::always_inline]] inline Weighed seen_only(const Weighed& all, Floats::Vector rows, std::int64_t key) {
  const Floats::Mask hidden = Floats::above(Floats::all(static_cast<float>(key)), rows);
  return {Floats::pick(hidden, Floats::all(0.0f), all.weight), Floats::pick(hidden, Floats::all(0.0f), all.grad)};
}

}  // namespace
}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
