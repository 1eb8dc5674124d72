// A batch norm in eval mode that is the only reader of a convolution goes into its weight and bias, when these are packed.
#include <optional>

#include "preload/plugin/graph/passes.h"

namespace ipexrun::preload::graph {
namespace {

bool is_number(const Argument& argument) { return argument.kind == Argument::Kind::kConstant && argument.constant.isScalar(); }

/// Where the arguments of the forms of a batch norm that uses the statistics it has stand: input, weight, bias, mean, variance, eps.
std::optional<std::array<std::size_t, 6>> places(const Node& node) {
  if (node.is("_native_batch_norm_legit_no_training", "")) return {{0, 1, 2, 3, 4, 6}};
  const bool with_mode = node.is("native_batch_norm", "") || node.is("cudnn_batch_norm", "");
  if (!with_mode) return std::nullopt;
  const Argument& training = node.arguments[5];
  if (training.kind != Argument::Kind::kConstant || !training.constant.isBool() || training.constant.toBool()) return std::nullopt;
  return {{0, 1, 2, 3, 4, 7}};
}

/// A vector of the model's, one number a channel; `optional`: or none at all.
bool read(const Graph& graph, const Argument& argument, std::int64_t channels, bool optional, Value* to) {
  if (argument.kind == Argument::Kind::kConstant) return optional && argument.constant.isNone();
  if (argument.kind != Argument::Kind::kValue || argument.value == kNone) return optional && argument.kind == Argument::Kind::kValue;
  const Facts& facts = graph.facts[static_cast<std::size_t>(argument.value)];
  *to = argument.value;
  return facts.weight && facts.sizes.size() == 1 && facts.sizes[0] == channels &&
         (facts.dtype == at::kFloat || facts.dtype == at::kBFloat16);
}

bool fold(const Graph& graph, const Node& norm, const std::array<std::size_t, 6>& at, Convolution* to) {
  const std::int64_t channels = graph.facts[static_cast<std::size_t>(to->weight)].sizes[0];
  if (!is_number(norm.arguments[at[5]])) return false;
  to->eps = norm.arguments[at[5]].constant.toScalar().toDouble();
  return read(graph, norm.arguments[at[1]], channels, true, &to->scale) && read(graph, norm.arguments[at[2]], channels, true, &to->shift) &&
         read(graph, norm.arguments[at[3]], channels, false, &to->mean) &&
         read(graph, norm.arguments[at[4]], channels, false, &to->variance);
}

}  // namespace

void fold_norms(Graph* graph, Fused* fused) {
  std::vector<std::size_t> maker(graph->facts.size(), graph->nodes.size());
  std::vector<int> uses = graph->uses();
  for (std::size_t i = 0; i < graph->nodes.size(); ++i) {
    for (const Value value : graph->nodes[i].outputs) maker[static_cast<std::size_t>(value)] = i;
    Node& norm = graph->nodes[i];
    const auto at = places(norm);
    if (!at || norm.arguments[0].kind != Argument::Kind::kValue) continue;
    const auto x = static_cast<std::size_t>(norm.arguments[0].value);
    if (maker[x] == graph->nodes.size() || uses[x] != 1) continue;
    Node& source = graph->nodes[maker[x]];
    if (source.kind != Node::Kind::kConvolution || source.convolution.mean != kNone) continue;
    // The mean and the deviation that it gives beside its result are not computed any more.
    if (uses[static_cast<std::size_t>(norm.outputs[1])] > 0 || uses[static_cast<std::size_t>(norm.outputs[2])] > 0) continue;
    const Facts& result = graph->facts[static_cast<std::size_t>(norm.outputs[0])];
    if (result.dtype != graph->facts[x].dtype || result.layout != graph->facts[x].layout) continue;
    Convolution folded = source.convolution;
    if (!fold(*graph, norm, *at, &folded)) continue;
    const Value value = norm.outputs[0];
    norm = Node{};
    norm.kind = Node::Kind::kConvolution;
    norm.outputs = {value};
    norm.convolution = std::move(folded);
    source = Node{};  // reads nothing and gives nothing: drop_dead() takes it away
    ++fused->folded_norms;
  }
}

}  // namespace ipexrun::preload::graph
