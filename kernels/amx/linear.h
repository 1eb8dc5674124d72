// The AMX bf16 variant of linear, see dispatch.h for what the functions mean.
#pragma once

#include "kernels/dispatch.h"

namespace ipexrun::kernels::amx {

std::size_t linear_scratch_bytes(const LinearArgs& args, const LinearBlock& block);
void linear(const LinearArgs& args, const LinearBlock& block, void* scratch);

}  // namespace ipexrun::kernels::amx
