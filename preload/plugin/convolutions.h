// Convolution of captured steps of training in bf16 as one operation of autograd: the weight is rounded and laid out for forward and
// backward in one pass over it, and its gradient brought back in one. For captured steps (python/ipexrun/training/step_norms.py).
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>

namespace ipexrun::preload {

struct RoundedConvolution {
  at::Tensor from;                 ///< [N, C, H, W], bfloat16 channels last, or float32
  at::Tensor weight;               ///< [M, C / groups, height, width], float32
  std::optional<at::Tensor> bias;  ///< [M], float32
  std::array<std::int64_t, 2> stride{1, 1};
  std::array<std::int64_t, 2> padding{};
  std::array<std::int64_t, 2> dilation{1, 1};
  std::int64_t groups = 1;
};

/// What torch's conv2d gives under autocast, in bfloat16, channels last; recorded for autograd, also twice. None where it does not fit
/// (layout, dtype, sizes that torch refuses): torch shall do it. Under the interpreter lock or not.
std::optional<at::Tensor> rounded_convolution(const RoundedConvolution& call);

}  // namespace ipexrun::preload
