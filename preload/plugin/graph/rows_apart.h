// Whether the rows of a value may lie further apart than they are long: where attention, rotary embeddings and products alone read it,
// through views that keep rows whole.
#pragma once

#include <cstdint>

#include "preload/plugin/graph/match.h"

namespace ipexrun::preload::graph {

/// `value`: [.., n], of a product.
bool may_lie_apart(const Graph& graph, const Match& match, Value value, std::int64_t n);

}  // namespace ipexrun::preload::graph
