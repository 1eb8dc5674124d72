// gelu written out by the program, as transformers does: x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))), or with erf(x / sqrt(2)).
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "preload/plugin/graph/passes.h"

namespace ipexrun::preload::graph {
namespace {

/// What a value is made of, looked at from its end.
class Matcher {
 public:
  explicit Matcher(const Graph& graph) : graph_(graph), maker_(graph.facts.size(), nullptr) {
    for (const Node& node : graph.nodes) {
      for (const Value value : node.outputs) maker_[static_cast<std::size_t>(value)] = &node;
    }
  }

  /// x, when `node` is the last product of a gelu of x; and which of the two it is.
  [[nodiscard]] std::optional<std::pair<Value, const char*>> gelu(const Node& node) const {
    if (!node.is("mul", "Tensor")) return std::nullopt;
    for (const int side : {0, 1}) {
      const std::optional<Value> x = scaled(node.arguments[static_cast<std::size_t>(side)], 0.5);
      const std::optional<Value> bent = plus(node.arguments[static_cast<std::size_t>(1 - side)], 1);
      if (!x || !bent) continue;
      const Node* function = maker(*bent);
      if (function == nullptr) continue;
      if (function->is("erf", "") && is_scaled(function->arguments[0], *x, std::sqrt(0.5))) return std::pair(*x, "none");
      if (function->is("tanh", "") && is_cubic(function->arguments[0], *x)) return std::pair(*x, "tanh");
    }
    return std::nullopt;
  }

 private:
  [[nodiscard]] const Node* maker(Value value) const { return value == kNone ? nullptr : maker_[static_cast<std::size_t>(value)]; }
  [[nodiscard]] const Node* maker(const Argument& argument) const {
    return argument.kind == Argument::Kind::kValue ? maker(argument.value) : nullptr;
  }
  static bool is_number(const Argument& argument, double number) {
    return argument.kind == Argument::Kind::kConstant && argument.constant.isScalar() &&
           std::abs(argument.constant.toScalar().toDouble() - number) <= 1e-6 * std::abs(number);
  }
  /// x in x * factor, or in x / (1 / factor).
  [[nodiscard]] std::optional<Value> scaled(const Argument& argument, double factor) const {
    const Node* node = maker(argument);
    if (node == nullptr) return std::nullopt;
    const bool product = node->is("mul", "Tensor") || node->is("mul", "Scalar");
    const bool quotient = node->is("div", "Tensor") || node->is("div", "Scalar");
    if ((!product && !quotient) || node->arguments[0].kind != Argument::Kind::kValue) return std::nullopt;
    return is_number(node->arguments[1], product ? factor : 1 / factor) ? std::optional(node->arguments[0].value) : std::nullopt;
  }
  [[nodiscard]] bool is_scaled(const Argument& argument, Value x, double factor) const { return scaled(argument, factor) == x; }
  /// x in x + number.
  [[nodiscard]] std::optional<Value> plus(const Argument& argument, double number) const {
    const Node* node = maker(argument);
    if (node == nullptr || !(node->is("add", "Tensor") || node->is("add", "Scalar")) || !is_number(node->arguments[2], 1))
      return std::nullopt;
    if (node->arguments[0].kind != Argument::Kind::kValue || !is_number(node->arguments[1], number)) return std::nullopt;
    return node->arguments[0].value;
  }
  /// sqrt(2 / pi) * (x + 0.044715 * x^3)
  [[nodiscard]] bool is_cubic(const Argument& argument, Value x) const {
    const std::optional<Value> sum = scaled(argument, std::sqrt(2 / M_PI));
    const Node* add = sum ? maker(*sum) : nullptr;
    if (add == nullptr || !add->is("add", "Tensor") || !is_number(add->arguments[2], 1) || !add->arguments[0].is_value(x)) return false;
    const std::optional<Value> cube = scaled(add->arguments[1], 0.044715);
    const Node* power = cube ? maker(*cube) : nullptr;
    return power != nullptr && power->is("pow", "Tensor_Scalar") && power->arguments[0].is_value(x) && is_number(power->arguments[1], 3);
  }

  const Graph& graph_;
  std::vector<const Node*> maker_;
};

}  // namespace

void find_gelu(Graph* graph, Fused* fused) {
  const std::optional<c10::OperatorHandle> op = c10::Dispatcher::singleton().findSchema({"aten::gelu", ""});
  if (!op) return;
  const Graph before = *graph;
  const Matcher matcher(before);
  for (std::size_t i = 0; i < before.nodes.size(); ++i) {
    const auto found = matcher.gelu(before.nodes[i]);
    if (!found) continue;
    const Facts& x = before.facts[static_cast<std::size_t>(found->first)];
    const Facts& result = before.facts[static_cast<std::size_t>(before.nodes[i].outputs[0])];
    if (x.dtype != result.dtype || x.sizes != result.sizes) continue;
    Node& node = graph->nodes[i];
    node.op = op;
    node.arguments = {Argument::of(found->first), Argument::of(c10::IValue(found->second))};
    ++fused->gelus;
  }
}

}  // namespace ipexrun::preload::graph
