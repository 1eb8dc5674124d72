// Pools of images that lie channels last: kernels/pool_last.h, which stock's code for bf16 is far from.
#pragma once

#include "preload/plugin/graph/executor.h"

namespace ipexrun::preload::graph {

/// For a node kOwn that was max_pool2d_with_indices (without its indices), avg_pool2d or mean over height and width, with its arguments;
/// `index` is a PoolOf. Where our kernel does not do, torch's operator does.
enum class PoolOf : int { kMax = 0, kAverage = 1, kMean = 2 };
std::unique_ptr<Step> make_pool_step(const Node& node);

}  // namespace ipexrun::preload::graph
