// The variants of attention_grad; see dispatch.h. A unit is a head of K and V with the heads of Q that share it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention_grad.h"
#include "kernels/dispatch.h"

namespace ipexrun::kernels {

struct AttentionGradVariant {
  const char* name;
  IsaSet needs;
  std::size_t (*scratch_bytes)(const AttentionGradArgs& args);
  void (*run)(const AttentionGradArgs& args, std::int64_t unit_begin, std::int64_t unit_end, void* scratch);
};

using AttentionGradVariants = Variants<AttentionGradVariant>;
AttentionGradVariants attention_grad_variants(DType dtype);

}  // namespace ipexrun::kernels
