// The same operator on the same arguments gives the same value: computed once. Values that a result of the graph may share memory with
// stay apart, because the program may write into one of them afterwards. A copy that lies as its source does is the same value, too.
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "preload/plugin/graph/passes.h"
#include "preload/plugin/graph/seen_outside.h"

namespace ipexrun::preload::graph {
namespace {

bool is_copy(const Graph& graph, const Node& node) {
  if (!node.is("clone", "") || node.arguments[0].kind != Argument::Kind::kValue) return false;
  return graph.facts[static_cast<std::size_t>(node.arguments[0].value)].contiguous &&
         graph.facts[static_cast<std::size_t>(node.outputs[0])].contiguous;
}

}  // namespace

void share_equal(Graph* graph) {
  const std::vector<bool> seen = seen_outside(*graph);
  std::map<std::string, std::size_t> first;
  std::vector<Value> stands_for(graph->facts.size());
  std::iota(stands_for.begin(), stands_for.end(), 0);
  const auto stand = [&](Value from, Value to) { stands_for[static_cast<std::size_t>(from)] = to; };
  for (std::size_t i = 0; i < graph->nodes.size(); ++i) {
    rename(&graph->nodes[i], stands_for);
    const Node& node = graph->nodes[i];
    if (is_copy(*graph, node) && !seen[static_cast<std::size_t>(node.outputs[0])]) {
      stand(node.outputs[0], node.arguments[0].value);
      continue;
    }
    if (node.kind != Node::Kind::kOperator || !node.op || node.outputs.size() != 1 || seen[static_cast<std::size_t>(node.outputs[0])] ||
        node.op->hasTag(at::Tag::nondeterministic_seeded)) {
      continue;
    }
    std::string key = toString(node.op->operator_name()) + ' ';
    bool known = true;
    for (const Argument& argument : node.arguments) known = known && append_text(argument, &key);
    if (!known) continue;
    const auto [found, is_new] = first.emplace(std::move(key), i);
    if (!is_new) stand(node.outputs[0], graph->nodes[found->second].outputs[0]);
  }
  for (Argument& output : graph->outputs) rename(&output, stands_for);
}

}  // namespace ipexrun::preload::graph
