// Rows that would lie a multiple of 4 KiB apart meet in one set of L1 (in most caches a set is chosen by the 12 lowest bits of an address),
// so that a product of a dozen rows of them has to copy its rows first, and attention fetches them again and again. A cache line between
// two rows ends that. Where a transformer's layers are 256 or 1024 numbers wide, or a multiple, this is so of what lies between the two
// products of its MLP.
#include "preload/plugin/graph/match.h"
#include "preload/plugin/graph/passes.h"
#include "preload/plugin/graph/rows_apart.h"

namespace ipexrun::preload::graph {

void space_rows(Graph* graph) {
  const Match match(*graph);
  for (Node& node : graph->nodes) {
    if (node.kind != Node::Kind::kLinear) continue;
    const Facts& result = match.facts(node.outputs[0]);
    if (result.sizes.empty() || result.sizes.back() <= 0) continue;
    const std::int64_t columns = match.facts(node.linear.weight).sizes[node.linear.rows_are_outputs ? 0 : 1];
    const std::int64_t row_bytes = columns * (node.linear.bf16_out || result.dtype == at::kBFloat16 ? 2 : 4);
    node.linear.rows_apart =
        result.sizes.back() == columns && meet_in_one_set(row_bytes) && may_lie_apart(*graph, match, node.outputs[0], columns);
  }
}

}  // namespace ipexrun::preload::graph
