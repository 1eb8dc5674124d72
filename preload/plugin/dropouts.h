// Dropout of training as one operation of autograd, its mask kept in bytes: kernels/masked.h on what bernoulli_ draws. For captured steps
// of training (python/ipexrun/training/step_norms.py); the user's own calls go to torch.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace ipexrun::preload {

/// What torch's dropout gives, to the bit, and the same random numbers drawn. None where it does not fit (layout, dtype, p of 0 or 1):
/// nothing was drawn then, and torch shall do it.
std::optional<at::Tensor> masked_dropout(const at::Tensor& from, double p);

}  // namespace ipexrun::preload
