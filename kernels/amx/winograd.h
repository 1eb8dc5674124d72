// winograd with products of fp32 in parts on AMX (amx/winograd.cpp); see winograd_variants.h for what the functions mean.
#pragma once

#include "kernels/winograd_variants.h"

namespace ipexrun::kernels::amx {

std::size_t winograd_scratch_bytes(const WinogradArgs& args, const LinearBlock& block);
bool winograd(const WinogradArgs& args, const LinearBlock& block, void* scratch);

}  // namespace ipexrun::kernels::amx
