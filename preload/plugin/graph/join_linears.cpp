// Linear layers of one x (query, key and value of attention) become one product, whose results are columns of one buffer. Only where
// whoever reads them reads rows that lie apart as well (rows_apart.h).
//
// Measured beside single products, weights not in L2: 0 to 13% faster from 128 rows on, the same at one row, at no size slower, so there is
// no threshold. (A gate and what it multiplies are not joined: silu and the product then want a pass of their own, which costs as much.)
#include <algorithm>
#include <map>

#include "preload/plugin/graph/joined_step.h"
#include "preload/plugin/graph/match.h"
#include "preload/plugin/graph/passes.h"
#include "preload/plugin/graph/rows_apart.h"

namespace ipexrun::preload::graph {
namespace {

class Joiner {
 public:
  Joiner(Graph* graph, Fused* fused) : graph_(*graph), fused_(*fused), match_(*graph) {}

  void run() {
    std::map<Value, std::vector<std::size_t>> by_x;
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (fits(graph_.nodes[i])) by_x[graph_.nodes[i].linear.x].push_back(i);
    }
    for (const auto& [x, places] : by_x) {
      std::vector<std::size_t> alike;
      for (const std::size_t place : places) {
        if (alike_to(graph_.nodes[places[0]], graph_.nodes[place]) && is_there(place, places[0])) alike.push_back(place);
      }
      join(x, alike);
    }
  }

 private:
  [[nodiscard]] std::int64_t columns(const Node& node) const { return match_.facts(node.linear.weight).sizes[0]; }

  [[nodiscard]] bool fits(const Node& node) const {
    if (node.kind != Node::Kind::kLinear || !node.linear.rows_are_outputs || node.linear.unary != kernels::Unary::kNone ||
        node.linear.binary != kernels::Binary::kNone) {
      return false;
    }
    const Facts& result = match_.facts(node.outputs[0]);
    return node.arguments.empty() && result.sizes.size() == 2 && columns(node) > 0 &&
           may_lie_apart(graph_, match_, node.outputs[0], columns(node));
  }

  [[nodiscard]] bool alike_to(const Node& a, const Node& b) const {
    return match_.facts(a.linear.weight).dtype == match_.facts(b.linear.weight).dtype && a.linear.bf16_out == b.linear.bf16_out &&
           a.linear.exact == b.linear.exact;
  }

  /// What weight and bias are computed from weights by stands before the first of the layers.
  [[nodiscard]] bool is_there(std::size_t place, std::size_t first) const {
    const Linear& linear = graph_.nodes[place].linear;
    const auto made_before = [&](Value value) {
      const Node* node = value == kNone ? nullptr : match_.maker(value);
      return node == nullptr || node - graph_.nodes.data() < static_cast<std::ptrdiff_t>(first);
    };
    return made_before(linear.weight) && made_before(linear.bias);
  }

  /// Weights whose packs end in the middle of a panel come last; of several such, one.
  void join(Value x, std::vector<std::size_t> places) {
    const auto broken = [&](std::size_t place) { return columns(graph_.nodes[place]) % kJoinedColumns != 0; };
    const auto first_broken = std::stable_partition(places.begin(), places.end(), [&](std::size_t place) { return !broken(place); });
    if (places.end() - first_broken > 1) places.erase(first_broken + 1, places.end());
    if (places.size() < 2) return;
    for (std::size_t i = 0; i < places.size(); ++i) {  // one pack cannot lie at two places
      for (std::size_t j = 0; j < i; ++j) {
        if (graph_.nodes[places[i]].linear.weight == graph_.nodes[places[j]].linear.weight) return;
      }
    }
    Node joined;
    joined.kind = Node::Kind::kOwn;
    joined.own_step = make_joined_step;
    joined.own_name = "linear layers joined";
    const Linear& first = graph_.nodes[places[0]].linear;
    if (first.bf16_out) joined.index |= kJoinedBf16Out;
    if (first.exact) joined.index |= kJoinedExact;
    joined.arguments.push_back(Argument::of(x));
    for (const std::size_t place : places) {
      const Node& node = graph_.nodes[place];
      joined.arguments.push_back(Argument::of(node.linear.weight));
      joined.arguments.push_back(Argument::of(node.linear.bias));
      joined.outputs.push_back(node.outputs[0]);
    }
    const std::size_t at = *std::min_element(places.begin(), places.end());
    fused_.joined += static_cast<int>(places.size());
    for (const std::size_t place : places) graph_.nodes[place] = Node{};
    graph_.nodes[at] = std::move(joined);  // x is there, and so are weights and biases
  }

  Graph& graph_;
  Fused& fused_;
  Match match_;
};

}  // namespace

void join_linears(Graph* graph, Fused* fused) { Joiner(graph, fused).run(); }

}  // namespace ipexrun::preload::graph
