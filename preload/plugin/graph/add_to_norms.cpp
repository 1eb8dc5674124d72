// An addition right before a norm goes into its pass, which gives the sum as well where somebody else reads it later.
#include <algorithm>

#include "preload/plugin/graph/match.h"
#include "preload/plugin/graph/norm_step.h"
#include "preload/plugin/graph/passes.h"

namespace ipexrun::preload::graph {
namespace {

/// Of two tensors of the sum's own dtype, sizes and order.
bool is_plain_sum(const Match& match, const Node& node) {
  if (!node.is("add", "Tensor") || !is_number(node.arguments[2], 1)) return false;
  const Facts& sum = match.facts(node.outputs[0]);
  return std::all_of(node.arguments.begin(), node.arguments.begin() + 2, [&](const Argument& argument) {
    const Value value = value_of(argument);
    if (value == kNone) return false;
    const Facts& facts = match.facts(value);
    return facts.tensor && facts.dtype == sum.dtype && facts.sizes == sum.sizes && facts.contiguous && sum.contiguous;
  });
}

}  // namespace

void add_to_norms(Graph* graph, Fused* fused) {
  const Match match(*graph);
  for (std::size_t i = 0; i < graph->nodes.size(); ++i) {
    Node& norm = graph->nodes[i];
    if (norm.own_step != make_norm_step || value_of(norm.arguments[kNormResidual]) != kNone) continue;
    const Value x = norm.arguments[kNormX].value;
    const Node* maker = match.maker(x);
    if (maker == nullptr || !is_plain_sum(match, *maker)) continue;
    const std::vector<std::size_t>& readers = match.readers(x);
    if (std::any_of(readers.begin(), readers.end(), [&](std::size_t place) { return place < i; })) continue;
    if (readers.size() > 1 || match.is_result(x)) {
      norm.outputs.push_back(x);
      norm.index |= kNormSum;
    }
    norm.arguments[kNormX] = maker->arguments[0];
    norm.arguments[kNormResidual] = maker->arguments[1];
    graph->nodes[static_cast<std::size_t>(maker - graph->nodes.data())] = Node{};
    ++fused->sums_in_norms;
  }
}

}  // namespace ipexrun::preload::graph
