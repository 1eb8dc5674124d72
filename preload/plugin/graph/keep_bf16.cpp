// float32 on its way from one linear layer to the next, through views and copies alone, is rounded to bf16 by the reader anyway: written as
// bf16 it takes half the memory and no time to convert.
#include "preload/plugin/graph/passes.h"

namespace ipexrun::preload::graph {
namespace {

/// Of the same elements: a view or a copy.
bool is_view(const Node& node) {
  return node.is("view", "") || node.is("_unsafe_view", "") || (node.is("clone", "") && node.arguments[1].constant.isNone());
}

/// Every reader of the value, through these, is a linear layer that multiplies by it.
bool only_products_read(const Graph& graph, Value value, std::size_t after) {
  for (const Argument& output : graph.outputs) {
    if (output.is_value(value)) return false;
  }
  for (std::size_t i = after + 1; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    for (const Value read : Graph::reads(node)) {
      if (read != value) continue;
      if (node.kind == Node::Kind::kLinear && node.linear.x == value && node.linear.other != value) continue;
      if (is_view(node) && only_products_read(graph, node.outputs[0], i)) continue;
      return false;
    }
  }
  return true;
}

}  // namespace

void keep_bf16(Graph* graph, Fused* fused) {
  for (std::size_t i = 0; i < graph->nodes.size(); ++i) {
    Node& node = graph->nodes[i];
    if (node.kind != Node::Kind::kLinear) continue;
    const Value value = node.outputs[0];
    if (graph->facts[static_cast<std::size_t>(value)].dtype != at::kFloat || !only_products_read(*graph, value, i)) continue;
    node.linear.bf16_out = true;
    ++fused->kept_bf16;
  }
}

}  // namespace ipexrun::preload::graph
