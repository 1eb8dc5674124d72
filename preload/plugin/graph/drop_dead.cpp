#include <algorithm>
#include <vector>

#include "preload/plugin/graph/passes.h"

namespace ipexrun::preload::graph {

void drop_dead(Graph* graph) {
  std::vector<int> uses = graph->uses();
  for (std::size_t i = graph->nodes.size(); i-- > 0;) {
    Node& node = graph->nodes[i];
    const bool read =
        std::any_of(node.outputs.begin(), node.outputs.end(), [&](Value value) { return uses[static_cast<std::size_t>(value)] > 0; });
    if (read) continue;
    for (const Value value : Graph::reads(node)) --uses[static_cast<std::size_t>(value)];
    node.outputs.clear();
  }
  std::erase_if(graph->nodes, [](const Node& node) { return node.outputs.empty(); });
}

}  // namespace ipexrun::preload::graph
