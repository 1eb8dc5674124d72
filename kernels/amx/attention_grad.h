// The AMX bf16 variant of attention_grad, see attention_grad_variants.h.
#pragma once

#include "kernels/attention_grad_variants.h"

namespace ipexrun::kernels::amx {

std::size_t attention_grad_scratch(const AttentionGradArgs& args);
void attention_grad(const AttentionGradArgs& args, std::int64_t unit_begin, std::int64_t unit_end, void* scratch);

}  // namespace ipexrun::kernels::amx
