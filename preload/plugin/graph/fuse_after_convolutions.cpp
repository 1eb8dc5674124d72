// What follows a convolution goes into it (kernels/conv.h), where nobody else reads what lies between: an activation and an addition of
// another tensor of the same sizes, in either order. A node moves to where the last thing fused into it stood, because what is added may
// be computed after the convolution.
#include <algorithm>
#include <limits>
#include <optional>

#include "preload/plugin/graph/passes.h"

namespace ipexrun::preload::graph {
namespace {

using kernels::ConvActivation;

struct Activation {
  ConvActivation kind = ConvActivation::kNone;
  float low = 0;
  float high = 0;
};

std::optional<float> number(const Argument& argument) {
  if (argument.kind != Argument::Kind::kConstant || !argument.constant.isScalar()) return std::nullopt;
  return static_cast<float>(argument.constant.toScalar().toDouble());
}

std::optional<Activation> activation_of(const Node& node) {
  if (node.is("relu", "")) return Activation{ConvActivation::kClamp, 0, std::numeric_limits<float>::infinity()};
  if (node.is("silu", "")) return Activation{ConvActivation::kSilu};
  if (node.is("hardswish", "")) return Activation{ConvActivation::kHardswish};
  if (node.is("hardtanh", "")) {
    const std::optional<float> low = number(node.arguments[1]);
    const std::optional<float> high = number(node.arguments[2]);
    if (!low || !high || !(*low <= *high)) return std::nullopt;
    return Activation{ConvActivation::kClamp, *low, *high};
  }
  if (node.is("gelu", "") && node.arguments[1].constant.isString()) {
    if (node.arguments[1].constant.toStringRef() == "none") return Activation{ConvActivation::kGelu};
    if (node.arguments[1].constant.toStringRef() == "tanh") return Activation{ConvActivation::kGeluTanh};
  }
  return std::nullopt;
}

class AfterConvolutionFuser {
 public:
  AfterConvolutionFuser(Graph* graph, Fused* fused) : graph_(*graph), fused_(*fused), uses_(graph->uses()) {}

  void run() {
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (graph_.nodes[i].kind == Node::Kind::kConvolution) follow(i);
    }
  }

 private:
  [[nodiscard]] const Facts& facts(Value value) const { return graph_.facts[static_cast<std::size_t>(value)]; }

  /// The node after `at` that reads the value, which has one reader; none where that is the result of the graph.
  [[nodiscard]] std::optional<std::size_t> reader(Value value, std::size_t at) const {
    for (std::size_t i = at + 1; i < graph_.nodes.size(); ++i) {
      const std::vector<Value> reads = Graph::reads(graph_.nodes[i]);
      if (std::find(reads.begin(), reads.end(), value) != reads.end()) return i;
    }
    return std::nullopt;
  }

  void follow(std::size_t at) {
    Convolution convolution = graph_.nodes[at].convolution;
    Value value = graph_.nodes[at].outputs[0];
    std::size_t last = at;
    while (uses_[static_cast<std::size_t>(value)] == 1) {
      const std::optional<std::size_t> next = reader(value, last);
      if (!next) break;
      const Node& node = graph_.nodes[*next];
      if (node.kind != Node::Kind::kOperator || node.outputs.size() != 1) break;
      const Facts& result = facts(node.outputs[0]);
      if (result.dtype != facts(value).dtype || result.sizes != facts(value).sizes) break;
      if (is_copy(node) && node.arguments[0].is_value(value)) {
        value = node.outputs[0];
        last = *next;
        continue;
      }
      if (!take_activation(node, value, &convolution) && !take_sum(node, value, &convolution)) break;
      value = node.outputs[0];
      last = *next;
      convolution.layout = result.layout;
    }
    if (last == at) return;
    Node moved;
    moved.kind = Node::Kind::kConvolution;
    moved.convolution = std::move(convolution);
    moved.outputs = {value};
    count(graph_.nodes[at], -1);
    count(graph_.nodes[last], -1);
    count(moved, 1);
    graph_.nodes[last] = std::move(moved);
    graph_.nodes[at] = Node{};  // reads nothing and gives nothing: drop_dead() takes it away
  }

  void count(const Node& node, int more) {
    for (const Value value : Graph::reads(node)) uses_[static_cast<std::size_t>(value)] += more;
  }

  /// As dropout leaves behind in eval mode.
  static bool is_copy(const Node& node) {
    return node.is("clone", "") && node.arguments[1].kind == Argument::Kind::kConstant && node.arguments[1].constant.isNone();
  }

  bool take_activation(const Node& node, Value value, Convolution* convolution) {
    const std::optional<Activation> activation = activation_of(node);
    if (!activation || convolution->activation != ConvActivation::kNone || !node.arguments[0].is_value(value)) return false;
    convolution->activation = activation->kind;
    convolution->low = activation->low;
    convolution->high = activation->high;
    ++fused_.activations;
    return true;
  }

  /// add(value, other) or add(other, value), of equal sizes and dtype, which lie in the way that is known.
  bool take_sum(const Node& node, Value value, Convolution* convolution) {
    if (convolution->other != kNone || !node.is("add", "Tensor")) return false;
    const std::optional<float> alpha = number(node.arguments[2]);
    if (alpha != 1.0F) return false;
    if (node.arguments[0].kind != Argument::Kind::kValue || node.arguments[1].kind != Argument::Kind::kValue) return false;
    const Value other = node.arguments[node.arguments[0].value == value ? 1 : 0].value;
    if (other == value || facts(other).dtype != facts(value).dtype || facts(other).sizes != facts(value).sizes) return false;
    if (facts(node.outputs[0]).layout == Layout::kUnknown) return false;
    convolution->other = other;
    convolution->other_after = convolution->activation != ConvActivation::kNone;
    ++fused_.sums;
    return true;
  }

  Graph& graph_;
  Fused& fused_;
  std::vector<int> uses_;
};

}  // namespace

void fuse_after_convolutions(Graph* graph, Fused* fused) { AfterConvolutionFuser(graph, fused).run(); }

}  // namespace ipexrun::preload::graph
