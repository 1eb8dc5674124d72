// The AMX variant of linear_f32, see linear_f32_variants.h for what the functions mean.
#pragma once

#include "kernels/linear_f32_variants.h"

namespace ipexrun::kernels::amx {

std::size_t linear_f32_scratch_bytes(const LinearF32Args& args, const LinearBlock& block);
void linear_f32(const LinearF32Args& args, const LinearBlock& block, void* scratch);

}  // namespace ipexrun::kernels::amx
