// Weights that --split-sgd keeps as bfloat16 (docs/training.md): products and convolutions of float32 activations with bfloat16 weights,
// which torch refuses, and their gradients, are computed as if the weight were a float32 tensor of these values. Other operators see
// bfloat16.
//
// Thread rule: all functions may be called from any thread.
#pragma once

#include <ATen/core/Tensor.h>

namespace ipexrun::preload {

/// From here on this process multiplies float32 with bfloat16; the first call registers kernels. False where it cannot, because an operator
/// has a kernel that is neither torch's nor ours.
bool multiply_mixed();

/// value == high + low exactly (kernels/split_float.h). `value` float32, `high` bfloat16, `low` int16, all dense and lying alike.
void split_into(const at::Tensor& value, at::Tensor& high, at::Tensor& low);
at::Tensor join(const at::Tensor& high, const at::Tensor& low);

}  // namespace ipexrun::preload
