// conv.h for forms that are not depthwise, with weights packed as bf16: called by conv.cpp.
#pragma once

#include "kernels/conv.h"

namespace ipexrun::kernels {

std::size_t dense_packed_bytes(const ConvWeight& weight);
void pack_dense(const ConvWeight& weight, void* to, const Parallel& parallel);
bool dense_supported(const ConvArgs& args, IsaSet isa);
const char* dense_variant(const ConvArgs& args, IsaSet isa);
/// At least one output.
bool dense(const ConvArgs& args, const Parallel& parallel, IsaSet isa);

}  // namespace ipexrun::kernels
