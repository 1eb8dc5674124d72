// The AMX-INT8 variant of linear_s8, see linear_s8_variants.h for what the functions mean.
#pragma once

#include "kernels/linear_s8_variants.h"

namespace ipexrun::kernels::amx_int8 {

std::size_t linear_s8_scratch_bytes(const LinearS8Args& args, const LinearBlock& block);
void linear_s8(const LinearS8Args& args, const LinearBlock& block, const PanelS8* panels, void* scratch);

}  // namespace ipexrun::kernels::amx_int8
