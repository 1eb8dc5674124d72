// The reference variant of decode_attention, see decode_attention_variants.h.
#pragma once

#include "kernels/decode_attention_variants.h"

namespace ipexrun::kernels::ref {

std::size_t decode_scratch_bytes(const DecodeAttentionArgs& args);
void decode_run(const DecodeAttentionArgs& args, const DecodeUnit& unit, void* scratch);

}  // namespace ipexrun::kernels::ref
