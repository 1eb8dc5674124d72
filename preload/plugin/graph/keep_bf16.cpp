// float32 that only steps of ours read which would round it to bf16 themselves is written as bf16: half the memory, and nothing to convert.
//
// Which values: all that our steps can write as bf16 are candidates; one goes when somebody reads it who wants float32, or when what it is
// a view or an element-wise result of goes, until nothing changes any more. Attention takes q, k, v and its result all in bf16 or none.
// A norm is written in both where some of its readers are products.
#include <algorithm>
#include <array>
#include <utility>

#include "preload/plugin/graph/attention_step.h"
#include "preload/plugin/graph/match.h"
#include "preload/plugin/graph/norm_step.h"
#include "preload/plugin/graph/passes.h"
#include "preload/plugin/graph/rotary_step.h"

namespace ipexrun::preload::graph {
namespace {

/// Of the same elements, or of some of them: a view, or a copy in the same dtype.
bool is_view(const Node& node) {
  static constexpr std::array kViews = {std::pair("view", ""),    std::pair("_unsafe_view", ""), std::pair("transpose", "int"),
                                        std::pair("permute", ""), std::pair("unsqueeze", ""),    std::pair("squeeze", "dim"),
                                        std::pair("expand", ""),  std::pair("slice", "Tensor"),  std::pair("select", "int"),
                                        std::pair("alias", ""),   std::pair("clone", "")};
  for (const auto& [name, overload] : kViews) {
    if (node.is(name, overload)) return true;
  }
  return false;
}

class Keeper {
 public:
  Keeper(Graph* graph, Fused* fused) : graph_(*graph), fused_(*fused), match_(*graph), kept_(graph->facts.size(), false) {}

  void run() {
    for (const Node& node : graph_.nodes) {
      if (writes_bf16(node) && match_.facts(node.outputs[0]).dtype == at::kFloat && !match_.is_result(node.outputs[0])) {
        kept_[static_cast<std::size_t>(node.outputs[0])] = true;
      }
    }
    while (drop_some()) {
    }
    for (Node& node : graph_.nodes) {
      if (node.outputs.empty() || !kept(node.outputs[0])) continue;
      graph_.facts[static_cast<std::size_t>(node.outputs[0])].dtype = at::kBFloat16;
      if (node.kind == Node::Kind::kLinear) node.linear.bf16_out = true;
      if (node.own_step == make_norm_step) node.index |= kNormBf16Out;
      if (!is_view(node)) ++fused_.kept_bf16;
    }
    for (Node& node : graph_.nodes) {
      if (node.own_step == make_norm_step && !kept(node.outputs[0])) give_both(&node);
    }
  }

 private:
  [[nodiscard]] bool kept(Value value) const { return value != kNone && kept_[static_cast<std::size_t>(value)]; }

  /// Whether a step of ours can write the first result as bf16, given that its operands are.
  static bool writes_bf16(const Node& node) {
    return node.kind == Node::Kind::kLinear || node.kind == Node::Kind::kAttention || node.own_step == make_norm_step ||
           node.own_step == make_rotary_step || is_view(node);
  }

  /// Whether the node may find bf16 in `value`.
  [[nodiscard]] bool takes_bf16(const Node& node, Value value) const {
    if (node.kind == Node::Kind::kLinear) {
      // What is added to or multiplied with a product that is rounded itself.
      if (node.linear.other == value && !kept(node.outputs[0])) return false;
      return node.linear.bias != value && node.linear.weight != value;
    }
    if (node.kind == Node::Kind::kAttention) return kept(node.outputs[0]) && !is_mask(node, value);
    if (node.own_step == make_rotary_step) return kept(node.outputs[0]) && node.arguments[kRotaryX].is_value(value);
    return is_view(node) && kept(node.outputs[0]);
  }

  /// Whether what the node computes its result from is bf16.
  [[nodiscard]] bool has_bf16(const Node& node) const {
    if (node.kind == Node::Kind::kLinear || node.own_step == make_norm_step) return true;
    if (node.kind == Node::Kind::kAttention) {
      return kept(value_of(node.arguments[0])) && kept(value_of(node.arguments[1])) && kept(value_of(node.arguments[2]));
    }
    return kept(value_of(node.arguments[0]));
  }

  bool drop_some() {
    bool changed = false;
    for (const Node& node : graph_.nodes) {
      if (node.outputs.empty() || !kept(node.outputs[0])) continue;
      const Value value = node.outputs[0];
      bool stays = has_bf16(node);
      for (const std::size_t reader : match_.readers(value)) stays = stays && takes_bf16(graph_.nodes[reader], value);
      if (stays) continue;
      kept_[static_cast<std::size_t>(value)] = false;
      changed = true;
    }
    return changed;
  }

  /// Whether products alone read the value, through views.
  [[nodiscard]] bool only_products_read(Value value) const {
    if (match_.is_result(value)) return false;
    return std::all_of(match_.readers(value).begin(), match_.readers(value).end(), [&](std::size_t place) {
      const Node& node = graph_.nodes[place];
      return is_view(node) ? only_products_read(node.outputs[0]) : multiplies(node, value);
    });
  }
  static bool multiplies(const Node& node, Value value) {
    const Linear& linear = node.linear;
    return node.kind == Node::Kind::kLinear && linear.x == value && linear.other != value && linear.weight != value && linear.bias != value;
  }

  /// A norm that others want in float32 is written as bf16, too, for products that read it.
  void give_both(Node* norm) {
    const Value value = norm->outputs[0];
    if (match_.facts(value).dtype != at::kFloat) return;
    Facts facts = match_.facts(value);
    facts.dtype = at::kBFloat16;
    Value narrow = kNone;
    for (const std::size_t place : match_.readers(value)) {
      Node& node = graph_.nodes[place];
      const bool view = is_view(node) && only_products_read(node.outputs[0]);
      if (!view && (node.kind != Node::Kind::kLinear || node.linear.x != value)) continue;  // which may add the float32 as well
      if (narrow == kNone) narrow = graph_.add_value(facts);
      if (view) {
        node.arguments[0] = Argument::of(narrow);
        narrow_views(node);
      } else {
        node.linear.x = narrow;
      }
    }
    if (narrow == kNone) return;
    norm->outputs.push_back(narrow);
    norm->index |= kNormBf16Too;
    ++fused_.kept_bf16;
  }

  void narrow_views(const Node& view) {
    graph_.facts[static_cast<std::size_t>(view.outputs[0])].dtype = at::kBFloat16;
    for (const std::size_t place : match_.readers(view.outputs[0])) {
      if (is_view(graph_.nodes[place])) narrow_views(graph_.nodes[place]);
    }
  }

  Graph& graph_;
  Fused& fused_;
  Match match_;
  std::vector<bool> kept_;
};

}  // namespace

void keep_bf16(Graph* graph, Fused* fused) { Keeper(graph, fused).run(); }

}  // namespace ipexrun::preload::graph
