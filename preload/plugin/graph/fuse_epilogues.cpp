// What follows a linear layer goes into it (kernels/epilogue.h), where nobody else reads what lies between.
//
// Between the two there may be views that only take the rows apart ([B * S, N] as [B, S, N]) and copies: the linear layer then gives
// its matrix, and a view of it takes the place of what was fused. A node moves to where the last thing fused into it stood, because what
// is added may be computed after the product.
#include <algorithm>
#include <optional>

#include "preload/plugin/graph/passes.h"

namespace ipexrun::preload::graph {
namespace {

using kernels::Binary;
using kernels::Unary;

std::optional<Unary> unary_of(const Node& node) {
  if (node.is("relu", "")) return Unary::kRelu;
  if (node.is("tanh", "")) return Unary::kTanh;
  if (node.is("sigmoid", "")) return Unary::kSigmoid;
  if (node.is("silu", "")) return Unary::kSilu;
  if (!node.is("gelu", "")) return std::nullopt;
  const c10::IValue& how = node.arguments[1].constant;
  if (!how.isString()) return std::nullopt;
  if (how.toStringRef() == "none") return Unary::kGelu;
  if (how.toStringRef() == "tanh") return Unary::kGeluTanh;
  return std::nullopt;
}

class EpilogueFuser {
 public:
  EpilogueFuser(Graph* graph, Fused* fused) : graph_(*graph), fused_(*fused), uses_(graph->uses()) {}

  void run() {
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (graph_.nodes[i].kind == Node::Kind::kLinear) follow(i);
    }
  }

 private:
  [[nodiscard]] const Facts& facts(Value value) const { return graph_.facts[static_cast<std::size_t>(value)]; }
  [[nodiscard]] bool read_once(Value value) const { return uses_[static_cast<std::size_t>(value)] == 1; }

  /// The node after `at` that reads the value, which has one reader; none where that is the result of the graph.
  [[nodiscard]] std::optional<std::size_t> reader(Value value, std::size_t at) const {
    for (std::size_t i = at + 1; i < graph_.nodes.size(); ++i) {
      const std::vector<Value> reads = Graph::reads(graph_.nodes[i]);
      if (std::find(reads.begin(), reads.end(), value) != reads.end()) return i;
    }
    return std::nullopt;
  }

  /// A view or a copy of a [M, N] result whose last dimension is still N.
  [[nodiscard]] bool keeps_rows(const Node& node, std::int64_t n) const {
    const bool view = node.is("view", "") || node.is("_unsafe_view", "") || node.is("reshape", "");
    const bool copy = node.is("clone", "") && node.arguments[1].constant.isNone();
    if (!view && !copy) return false;
    const Facts& to = facts(node.outputs[0]);
    return !to.sizes.empty() && to.sizes.back() == n;
  }

  /// A size that changes is no 1 (torch specializes on that), so two of them at one place that are added are the same size.
  [[nodiscard]] bool same_sizes(Value a, Value b) const { return facts(a).sizes == facts(b).sizes; }

  void follow(std::size_t at) {
    Linear linear = graph_.nodes[at].linear;
    const Value matrix = graph_.nodes[at].outputs[0];
    const std::int64_t n = facts(linear.weight).sizes[linear.rows_are_outputs ? 0 : 1];
    const at::ScalarType dtype = facts(matrix).dtype;
    Value value = matrix;   // what the chain has come to
    std::size_t last = at;  // of what is fused
    Value result = matrix;  // what stands for it
    std::size_t place = at;
    std::vector<Argument> shape = graph_.nodes[at].arguments;  // the sizes that the last view gave
    std::vector<Argument> shaped;                              // those of what is fused
    while (read_once(value)) {
      const std::optional<std::size_t> next = reader(value, place);
      if (!next) break;
      const Node& node = graph_.nodes[*next];
      if (node.kind != Node::Kind::kOperator || node.outputs.size() != 1 || facts(node.outputs[0]).dtype != dtype) break;
      if (keeps_rows(node, n)) {
        if (!node.is("clone", "")) shape.assign(1, node.arguments[1]);
        value = node.outputs[0];
        place = *next;
        continue;
      }
      if (const std::optional<Unary> unary = unary_of(node); unary && linear.unary == Unary::kNone) {
        linear.unary = *unary;
        linear.binary_first = linear.binary != Binary::kNone;
        ++fused_.activations;
      } else if (!take_binary(node, value, &linear)) {
        break;
      }
      value = result = node.outputs[0];
      last = place = *next;
      shaped = shape;
    }
    if (last != at) replace(at, last, linear, result, std::move(shaped));
  }

  /// add(value, other), add(other, value) or mul of them, of equal sizes and dtype.
  bool take_binary(const Node& node, Value value, Linear* linear) {
    if (linear->binary != Binary::kNone) return false;
    const bool add = node.is("add", "Tensor");
    if (!add && !node.is("mul", "Tensor")) return false;
    if (add) {
      const c10::IValue& alpha = node.arguments[2].constant;
      if (!alpha.isScalar() || !alpha.toScalar().equal(1)) return false;
    }
    if (node.arguments[0].kind != Argument::Kind::kValue || node.arguments[1].kind != Argument::Kind::kValue) return false;
    const Value other = node.arguments[node.arguments[0].value == value ? 1 : 0].value;
    const Facts& beside = facts(other);
    if (other == value || beside.dtype != facts(value).dtype || !beside.contiguous || !same_sizes(other, value)) return false;
    linear->binary = add ? Binary::kAdd : Binary::kMul;
    linear->other = other;
    linear->binary_first = false;
    ++fused_.sums;
    return true;
  }

  /// The linear layer moves to `last` and gives what that node gave.
  void replace(std::size_t at, std::size_t last, const Linear& linear, Value result, std::vector<Argument> shape) {
    Node moved;
    moved.kind = Node::Kind::kLinear;
    moved.arguments = std::move(shape);
    moved.linear = linear;
    moved.outputs = {result};
    count(graph_.nodes[at], -1);
    count(graph_.nodes[last], -1);
    count(moved, 1);
    graph_.nodes[last] = std::move(moved);
    graph_.nodes[at] = Node{};  // reads nothing and gives nothing: drop_dead() takes it away, and the views between
  }

  void count(const Node& node, int more) {
    for (const Value value : Graph::reads(node)) uses_[static_cast<std::size_t>(value)] += more;
  }

  Graph& graph_;
  Fused& fused_;
  std::vector<int> uses_;
};

}  // namespace

void fuse_epilogues(Graph* graph, Fused* fused) { EpilogueFuser(graph, fused).run(); }

}  // namespace ipexrun::preload::graph
