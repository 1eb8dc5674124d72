// The variants made from simd/decode_attention.cpp, one namespace an instruction set; see decode_attention_variants.h.
#pragma once

#include "kernels/decode_attention_variants.h"

namespace ipexrun::kernels::avx2 {
std::size_t decode_scratch_bytes(const DecodeAttentionArgs& args);
void decode_run(const DecodeAttentionArgs& args, const DecodeUnit& unit, void* scratch);
void decode_merge(const DecodeAttentionArgs& args, const DecodeUnit& unit, float* partials, std::int64_t count, std::int64_t stride);
}  // namespace ipexrun::kernels::avx2
namespace ipexrun::kernels::avx512 {
std::size_t decode_scratch_bytes(const DecodeAttentionArgs& args);
void decode_run(const DecodeAttentionArgs& args, const DecodeUnit& unit, void* scratch);
void decode_merge(const DecodeAttentionArgs& args, const DecodeUnit& unit, float* partials, std::int64_t count, std::int64_t stride);
}  // namespace ipexrun::kernels::avx512
