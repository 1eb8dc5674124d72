// The step of a layer norm or an rms norm over the last dimensions: kernels/normalize.h, with an addition before it.
#pragma once

#include "preload/plugin/graph/executor.h"

namespace ipexrun::preload::graph {

/// What a node that make_norm_step() reads has in `arguments`.
enum NormArgument : std::size_t { kNormX, kNormWeight, kNormBias, kNormResidual, kNormEps, kNormDims, kNormArguments };
/// Bits of its `index`.
enum NormForm : std::int64_t {
  kNormCentered = 1,  ///< layer norm, else rms norm
  kNormBf16Out = 2,   ///< of float32: the result is written as bf16
  kNormSum = 4,       ///< the sum is a result, too
  kNormBf16Too = 8,   ///< so is, of float32, the norm as bf16: the last one
};

/// x, weight, bias and residual are values, the last three may be absent; eps is a number or a value of one element, kNormDims the number
/// of last dimensions. Gives the norm of x + residual, of x's sizes, and as further results what `index` names.
std::unique_ptr<Step> make_norm_step(const Node& node);

}  // namespace ipexrun::preload::graph
