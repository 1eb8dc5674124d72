// The truth of conv.
#pragma once

#include "kernels/conv_dense.h"
#include "kernels/conv_variants.h"

namespace ipexrun::kernels::ref {

/// Of a sum with its bias.
double conv_activation(const ConvArgs& args, double value);

void depthwise(const ConvArgs& args, const DepthwisePlan& plan, std::int64_t begin, std::int64_t end, void* scratch);
void dense_conv(const ConvArgs& args, const DensePlan& plan, const DenseBlock& block, void* scratch);

}  // namespace ipexrun::kernels::ref
