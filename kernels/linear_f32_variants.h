// The variants of linear_f32, see dispatch.h for how one is chosen, and the layouts of B that they share.
//
// fp32: panels of 32 columns; a panel holds rows of K one after the other, 32 numbers each. fp16: packed.h's pairs of rows of K, as AMX
// takes them. N is padded to whole panels with zeros, K for fp16 to whole steps.
#pragma once

#include "kernels/dispatch.h"
#include "kernels/linear_f32.h"
#include "kernels/packed.h"

namespace ipexrun::kernels {

[[maybe_unused]] static constexpr std::int64_t panel_bytes_f32(std::int64_t k, bool half) {
  return half ? steps_of(k) * kStepBytes : k * kPanelColumns * 4;
}

struct LinearF32Variant {
  const char* name;
  IsaSet needs;
  bool parts;  ///< of fp32, for calls that ask for it
  std::size_t (*scratch_bytes)(const LinearF32Args& args, const LinearBlock& block);
  /// Computes the block, which is not empty; k >= 1. `scratch` is 64-byte aligned.
  void (*run)(const LinearF32Args& args, const LinearBlock& block, void* scratch);
};

using LinearF32Variants = Variants<LinearF32Variant>;
/// Those of parts are the first ones.
LinearF32Variants linear_f32_variants(bool half);

}  // namespace ipexrun::kernels
