// The AMX bf16 variant of dense convolution, see conv_dense.h for what the function means.
#pragma once

#include "kernels/conv_dense.h"

namespace ipexrun::kernels::amx {

void dense_conv(const ConvArgs& args, const DensePlan& plan, const DenseBlock& block, void* scratch);

}  // namespace ipexrun::kernels::amx
