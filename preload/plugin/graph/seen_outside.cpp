#include "preload/plugin/graph/seen_outside.h"

#include <string>

#include "preload/plugin/graph/match.h"

namespace ipexrun::preload::graph {
bool may_view(const Node& node) {
  if (!node.op) return true;
  for (const char* name : {"_unsafe_view", "reshape", "contiguous", "lift_fresh_copy", "lift_fresh", "_reshape_alias", "to"}) {
    if (node.op->operator_name().name == std::string("aten::") + name) return true;
  }
  for (const c10::Argument& result : node.op->schema().returns()) {
    if (result.alias_info() != nullptr) return true;
  }
  return false;
}

std::vector<bool> seen_outside(const Graph& graph) {
  std::vector<bool> seen(graph.facts.size(), false);
  for (const Argument& output : graph.outputs) mark_read(output, &seen);
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    if (!may_view(node)) continue;
    bool outside = false;
    for (const Value value : node.outputs) outside = outside || seen[static_cast<std::size_t>(value)];
    if (!outside) continue;
    for (const Argument& argument : node.arguments) mark_read(argument, &seen);
  }
  return seen;
}

}  // namespace ipexrun::preload::graph
