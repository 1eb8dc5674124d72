// Whether the rows of a value may lie further apart than they are long: where attention, rotary embeddings and products alone read it,
// through views that keep rows whole.
#pragma once

#include <cstdint>

#include "preload/plugin/graph/match.h"

namespace ipexrun::preload::graph {

/// Rows so far apart meet in one set of L1, which most caches choose by the 12 lowest bits of an address.
constexpr bool meet_in_one_set(std::int64_t row_bytes) { return row_bytes % 4096 == 0; }

/// `value`: [.., n], of a product.
bool may_lie_apart(const Graph& graph, const Match& match, Value value, std::int64_t n);

}  // namespace ipexrun::preload::graph
