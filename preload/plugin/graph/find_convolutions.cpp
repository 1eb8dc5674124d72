// Convolutions with a weight of the model, of 1 to 3 spatial dimensions; transposed ones stay stock's.
#include <algorithm>

#include "preload/plugin/graph/passes.h"

namespace ipexrun::preload::graph {
namespace {

const Facts* facts_of(const Graph& graph, const Argument& argument) {
  if (argument.kind != Argument::Kind::kValue || argument.value == kNone) return nullptr;
  return &graph.facts[static_cast<std::size_t>(argument.value)];
}

bool is_absent(const Argument& argument) {
  return argument.kind == Argument::Kind::kConstant ? argument.constant.isNone() : argument.is_value(kNone);
}

/// Numbers known now, one a spatial dimension; a single one stands for all.
bool read(const Argument& argument, std::size_t dims, std::vector<std::int64_t>* to) {
  if (argument.kind == Argument::Kind::kConstant) {
    if (!argument.constant.isIntList()) return false;
    *to = argument.constant.toIntVector();
  } else {
    for (const Argument& element : argument.list) {
      if (element.kind != Argument::Kind::kConstant || !element.constant.isInt()) return false;
      to->push_back(element.constant.toInt());
    }
  }
  if (to->size() == 1) to->resize(dims, to->front());
  return to->size() == dims;
}

bool all_at_least(const std::vector<std::int64_t>& numbers, std::int64_t least) {
  return std::all_of(numbers.begin(), numbers.end(), [least](std::int64_t number) { return number >= least; });
}

bool is_weight(const Facts* facts) {
  return facts != nullptr && facts->weight && facts->sizes.size() >= 3 && facts->sizes.size() <= 5 && all_at_least(facts->sizes, 1) &&
         (facts->dtype == at::kFloat || facts->dtype == at::kBFloat16);
}

/// input, weight, bias, stride, padding, dilation, transposed, output_padding, groups
bool describe(const Graph& graph, const Node& node, bool bf16, Convolution* to) {
  const Facts* x = facts_of(graph, node.arguments[0]);
  const Facts* weight = facts_of(graph, node.arguments[1]);
  const Facts* bias = facts_of(graph, node.arguments[2]);
  if (x == nullptr || !is_weight(weight) || x->dtype != weight->dtype || x->sizes.size() != weight->sizes.size()) return false;
  if (bias == nullptr ? !is_absent(node.arguments[2])
                      : !bias->weight || bias->sizes != std::vector<std::int64_t>{weight->sizes[0]} || bias->dtype != weight->dtype) {
    return false;
  }
  const Argument& transposed = node.arguments[6];
  const Argument& groups = node.arguments[8];
  if (transposed.kind != Argument::Kind::kConstant || !transposed.constant.isBool() || transposed.constant.toBool()) return false;
  if (groups.kind != Argument::Kind::kConstant || !groups.constant.isInt()) return false;
  const std::size_t dims = weight->sizes.size() - 2;
  if (!read(node.arguments[3], dims, &to->stride) || !read(node.arguments[4], dims, &to->padding) ||
      !read(node.arguments[5], dims, &to->dilation)) {
    return false;
  }
  if (!all_at_least(to->stride, 1) || !all_at_least(to->padding, 0) || !all_at_least(to->dilation, 1)) return false;
  to->behind = to->padding;
  to->groups = groups.constant.toInt();
  to->x = node.arguments[0].value;
  to->weight = node.arguments[1].value;
  if (bias != nullptr) to->bias = node.arguments[2].value;
  to->bf16 = bf16 || weight->dtype == at::kBFloat16;
  return to->groups > 0;
}

}  // namespace

void find_convolutions(Graph* graph, bool bf16, Fused* fused) {
  for (Node& node : graph->nodes) {
    // The second and third are what TorchScript calls.
    if (!node.is("convolution", "") && !node.is("_convolution", "") && !node.is("_convolution", "deprecated")) continue;
    Convolution convolution;
    if (!describe(*graph, node, bf16, &convolution)) continue;
    convolution.layout = graph->facts[static_cast<std::size_t>(node.outputs[0])].layout;
    node.kind = Node::Kind::kConvolution;
    node.op.reset();
    node.arguments.clear();
    node.convolution = std::move(convolution);
    ++fused->convolutions;
  }
}

}  // namespace ipexrun::preload::graph
