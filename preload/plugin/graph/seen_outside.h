// Which values the program may write into after a call: results, and what shares memory with them.
#pragma once

#include <vector>

#include "preload/plugin/graph/ir.h"

namespace ipexrun::preload::graph {

/// Its results may be views of its arguments.
bool may_view(const Node& node);

/// By value: it shares memory with a result, or may.
std::vector<bool> seen_outside(const Graph& graph);

}  // namespace ipexrun::preload::graph
