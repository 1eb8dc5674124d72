#include "preload/plugin/graph/rows_apart.h"

#include <algorithm>

#include "preload/plugin/graph/attention_step.h"
#include "preload/plugin/graph/rotary_step.h"

namespace ipexrun::preload::graph {
namespace {

/// Some last dimensions make up n, so that a view never runs over the end of a row.
bool keeps_rows(const Facts& facts, std::int64_t n) {
  std::int64_t product = 1;
  for (std::size_t i = facts.sizes.size(); i-- > 0 && product < n;) {
    if (facts.sizes[i] <= 0) return false;
    product *= facts.sizes[i];
  }
  return product == n;
}

/// `whole`: its dimensions are still in their order.
bool readers_take(const Graph& graph, const Match& match, Value value, std::int64_t n, bool whole) {
  if (match.is_result(value)) return false;
  return std::all_of(match.readers(value).begin(), match.readers(value).end(), [&](std::size_t place) {
    const Node& node = graph.nodes[place];
    if (node.kind == Node::Kind::kAttention) return !is_mask(node, value);
    if (node.own_step == make_rotary_step) return node.arguments[kRotaryX].is_value(value);
    if (node.kind == Node::Kind::kLinear) return whole && node.linear.x == value && node.linear.other != value;
    if (node.is("view", "") || node.is("_unsafe_view", "")) {
      return whole && keeps_rows(match.facts(node.outputs[0]), n) && readers_take(graph, match, node.outputs[0], n, true);
    }
    if (node.is("transpose", "int") || node.is("permute", "")) return readers_take(graph, match, node.outputs[0], n, false);
    return false;
  });
}

}  // namespace

bool may_lie_apart(const Graph& graph, const Match& match, Value value, std::int64_t n) {
  return readers_take(graph, match, value, n, true);
}

}  // namespace ipexrun::preload::graph
