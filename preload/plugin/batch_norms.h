// Batch norm of images that lie channels last, a sum and relu behind it, as one operation of autograd: kernels/batch_norm.h forward and
// backward. For captured steps of training (python/ipexrun/training/step_norms.py); the user's own calls go to torch.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace ipexrun::preload {

struct BatchNormCall {
  at::Tensor from;                     ///< [N, C, H, W], float32 or bfloat16
  std::optional<at::Tensor> residual;  ///< like `from`
  std::optional<at::Tensor> weight;    ///< [C], float32, as those that follow
  std::optional<at::Tensor> bias;
  std::optional<at::Tensor> running_mean;  ///< written where `training`
  std::optional<at::Tensor> running_var;
  bool training = false;
  double momentum = 0;
  double eps = 0;
  bool relu = false;
};

/// What torch's batch_norm, add and relu give, rounded once; recorded for autograd, also twice. None where it does not fit (layout, dtype,
/// one number a channel): nothing was written then, and torch shall do it. Under the interpreter lock or not.
std::optional<at::Tensor> fused_batch_norm(const BatchNormCall& call);

}  // namespace ipexrun::preload
