// The step of several linear layers of one x: one product with their packs, which lie one after the other.
#pragma once

#include <vector>

#include "preload/plugin/graph/executor.h"

namespace ipexrun::preload::graph {

/// What a node that make_joined_step() reads has in `arguments`: x, then the weight and the bias (or kNone) of each layer; `index` is 1
/// where the results are bf16. Every weight is [N, K], and each N but the last a whole number of panels (kernels/packed.h). Gives a matrix
/// a layer, [M, N]: columns of one buffer.
std::unique_ptr<Step> make_joined_step(const Node& node);

/// Columns of a panel: a pack whose columns are a multiple of it ends where another may begin.
inline constexpr std::int64_t kJoinedColumns = 32;

}  // namespace ipexrun::preload::graph
