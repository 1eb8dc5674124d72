// The step of several linear layers of one x: one product with their packs, which lie one after the other.
#pragma once

#include <cstdint>
#include <memory>

#include "preload/plugin/graph/executor.h"

namespace ipexrun::preload::graph {

/// Bits of `index` of such a node.
enum JoinedForm : std::int64_t {
  kJoinedBf16Out = 1,  ///< the results are bf16
  kJoinedExact = 2,    ///< float32 that no bf16 may stand for: as one product or as several, which of them is measured
};

/// What a node that make_joined_step() reads has in `arguments`: x, then the weight and the bias (or kNone) of each layer. Every weight is
/// [N, K], and each N but the last a whole number of panels (kernels/packed.h). Gives a matrix a layer, [M, N]: columns of one buffer.
std::unique_ptr<Step> make_joined_step(const Node& node);

/// Columns of a panel: a pack whose columns are a multiple of it ends where another may begin.
inline constexpr std::int64_t kJoinedColumns = 32;

}  // namespace ipexrun::preload::graph
