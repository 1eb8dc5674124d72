// Linear layers in a graph: addmm(bias, x, t(weight)) and mm(x, t(weight)), or with the weight as it lies.
#include <map>

#include "preload/plugin/graph/passes.h"

namespace ipexrun::preload::graph {
namespace {

bool is_one(const Argument& argument) {
  return argument.kind == Argument::Kind::kConstant && argument.constant.isScalar() && argument.constant.toScalar().equal(1);
}

/// Of the same sizes in every call.
bool is_matrix(const Facts& facts) { return facts.tensor && facts.sizes.size() == 2 && facts.sizes[0] >= 0 && facts.sizes[1] >= 0; }

/// A vector of N, as stock adds it to every row.
bool is_bias(const Facts& bias, const Facts& weight, std::int64_t n) {
  return bias.weight && bias.sizes.size() == 1 && bias.sizes[0] == n && bias.dtype == weight.dtype;
}

}  // namespace

void find_linears(Graph* graph, bool bf16, Fused* fused) {
  std::map<Value, Value> transposed;  // t(weight) -> weight
  for (Node& node : graph->nodes) {
    if (node.is("t", "") && node.arguments[0].kind == Argument::Kind::kValue) {
      const Facts& from = graph->facts[static_cast<std::size_t>(node.arguments[0].value)];
      if (from.weight && is_matrix(from)) transposed[node.outputs[0]] = node.arguments[0].value;
      continue;
    }
    const bool with_bias = node.is("addmm", "");
    if (!with_bias && !node.is("mm", "")) continue;
    const std::size_t x_at = with_bias ? 1 : 0;
    if (node.arguments[x_at].kind != Argument::Kind::kValue || node.arguments[x_at + 1].kind != Argument::Kind::kValue) continue;
    const auto weight = transposed.find(node.arguments[x_at + 1].value);
    Linear linear;
    linear.rows_are_outputs = weight != transposed.end();
    linear.weight = linear.rows_are_outputs ? weight->second : node.arguments[x_at + 1].value;
    const Facts& w = graph->facts[static_cast<std::size_t>(linear.weight)];
    if (!w.weight || !is_matrix(w)) continue;
    if (w.dtype != at::kBFloat16 && w.dtype != at::kFloat) continue;
    linear.exact = w.dtype == at::kFloat && !bf16;
    linear.x = node.arguments[x_at].value;
    if (with_bias) {
      if (node.arguments[0].kind != Argument::Kind::kValue || !is_one(node.arguments[3]) || !is_one(node.arguments[4])) continue;
      linear.bias = node.arguments[0].value;
      if (!is_bias(graph->facts[static_cast<std::size_t>(linear.bias)], w, w.sizes[linear.rows_are_outputs ? 0 : 1])) continue;
    }
    node.kind = Node::Kind::kLinear;
    node.op.reset();
    node.arguments.clear();
    node.linear = linear;
    ++fused->linears;
  }
}

}  // namespace ipexrun::preload::graph
