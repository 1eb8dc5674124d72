// Rotary position embedding as programs write it out: x * cos + cat(-x2, x1) * sin, with x1 and x2 the halves of x's rows. The tables have
// to repeat their first half, which is read off how they were made: cat(angles, angles), then element-wise functions and views.
#include "kernels/rotary.h"
#include "preload/plugin/graph/match.h"
#include "preload/plugin/graph/passes.h"
#include "preload/plugin/graph/rotary_step.h"
#include "preload/plugin/tier.h"
#include "preload/plugin/tier_state.h"

namespace ipexrun::preload::graph {
namespace {

class RotaryFinder {
 public:
  RotaryFinder(Graph* graph, Fused* fused) : graph_(*graph), fused_(*fused), match_(*graph) {}

  void run() {
    for (Node& node : graph_.nodes) {
      if (!node.is("add", "Tensor") || !is_number(node.arguments[2], 1)) continue;
      for (const std::size_t side : {0, 1}) {
        if (find(&node, match_.maker(node.arguments[side]), match_.maker(node.arguments[1 - side]))) break;
      }
    }
  }

 private:
  /// straight = x * cos, turned = cat(-x2, x1) * sin.
  bool find(Node* sum, const Node* straight, const Node* turned) {
    if (straight == nullptr || turned == nullptr || !straight->is("mul", "Tensor") || !turned->is("mul", "Tensor")) return false;
    for (const std::size_t side : {0, 1}) {
      const Value x = half_turned(match_.maker(turned->arguments[side]));
      const Value sin = value_of(turned->arguments[1 - side]);
      if (x == kNone || sin == kNone) continue;
      const Value cos = beside(*straight, x);
      if (cos == kNone || !fits(x, cos, sin, sum->outputs[0])) continue;
      Node node;
      node.kind = Node::Kind::kOwn;
      node.own_step = make_rotary_step;
      node.own_name = "rotary embedding";
      node.arguments = {Argument::of(x), Argument::of(cos), Argument::of(sin)};
      node.outputs = sum->outputs;
      node.index = match_.facts(sum->outputs[0]).contiguous ? 1 : 0;
      *sum = std::move(node);
      ++fused_.rotaries;
      return true;
    }
    return false;
  }

  [[nodiscard]] bool fits(Value x, Value cos, Value sin, Value result) const {
    const Facts& facts = match_.facts(x);
    if (facts.sizes.size() != 4 || (facts.dtype != at::kFloat && facts.dtype != at::kBFloat16) ||
        match_.facts(result).dtype != facts.dtype || match_.facts(result).sizes != facts.sizes) {
      return false;
    }
    for (const Value table : {cos, sin}) {
      const Facts& of = match_.facts(table);
      if (of.sizes.size() != 4 || of.sizes[1] != 1 || of.sizes[3] != facts.sizes[3] || !repeats(table)) return false;
    }
    return true;
  }

  /// x where `node` is cat(-x[half:], x[:half]) over the last of four dimensions.
  [[nodiscard]] Value half_turned(const Node* node) const {
    if (node == nullptr || !node->is("cat", "") || node->arguments[0].list.size() != 2) return kNone;
    const auto dim = number_of(node->arguments[1]);
    if (!dim || (*dim != -1 && *dim != 3)) return kNone;
    const Node* negative = match_.maker(node->arguments[0].list[0]);
    if (negative == nullptr || !negative->is("neg", "")) return kNone;
    const Node* second = match_.maker(negative->arguments[0]);
    const Node* first = match_.maker(node->arguments[0].list[1]);
    if (first == nullptr || second == nullptr) return kNone;
    const Value x = value_of(first->arguments[0]);
    if (x == kNone || !second->arguments[0].is_value(x)) return kNone;
    const Facts& facts = match_.facts(x);
    if (facts.sizes.size() != 4 || facts.sizes[3] <= 0 || facts.sizes[3] % 2 != 0) return kNone;
    const std::int64_t half = facts.sizes[3] / 2;
    return is_part(*first, 0, half, facts.sizes[3]) && is_part(*second, half, facts.sizes[3], facts.sizes[3]) ? x : kNone;
  }

  /// A slice [begin, end) of the last of four dimensions, of that size.
  static bool is_part(const Node& node, std::int64_t begin, std::int64_t end, std::int64_t size) {
    if (!node.is("slice", "Tensor")) return false;
    const auto dim = number_of(node.arguments[1]);
    const auto to = number_of(node.arguments[3]);
    const bool from_there = begin == 0 && node.arguments[2].kind == Argument::Kind::kConstant && node.arguments[2].constant.isNone();
    if (!dim || (*dim != 3 && *dim != -1) || !(from_there || is_exactly(node.arguments[2], begin)) || !is_exactly(node.arguments[4], 1))
      return false;
    return to && (is_exactly(node.arguments[3], end) || (end == size && *to >= static_cast<double>(size)));
  }

  static bool is_exactly(const Argument& argument, std::int64_t number) {
    return argument.kind == Argument::Kind::kConstant && argument.constant.isInt() && argument.constant.toInt() == number;
  }

  /// The second half of the last dimension is the first once more.
  [[nodiscard]] bool repeats(Value value) const {
    const Node* node = match_.maker(value);
    if (node == nullptr) return false;
    if (node->is("cat", "")) {
      const std::vector<Argument>& parts = node->arguments[0].list;
      const auto dim = number_of(node->arguments[1]);
      const auto last = static_cast<double>(match_.facts(value).sizes.size()) - 1;
      return dim && (*dim == -1 || *dim == last) && parts.size() == 2 && value_of(parts[0]) != kNone &&
             value_of(parts[0]) == value_of(parts[1]);
    }
    const Value from = node->arguments.empty() ? kNone : value_of(node->arguments[0]);
    if (from == kNone) return false;
    const bool by_element = node->is("cos", "") || node->is("sin", "") || node->is("_to_copy", "") || node->is("clone", "") ||
                            node->is("alias", "") ||
                            ((node->is("mul", "Tensor") || node->is("mul", "Scalar")) && number_of(node->arguments[1]));
    if (by_element) return repeats(from);
    const auto dim = node->is("unsqueeze", "") ? number_of(node->arguments[1]) : std::nullopt;
    return dim && *dim >= 0 && *dim < static_cast<double>(match_.facts(from).sizes.size()) && repeats(from);
  }

  Graph& graph_;
  Fused& fused_;
  Match match_;
};

}  // namespace

void find_rotary(Graph* graph, Fused* fused) {
  if (kernels::rotary_supported(tier()->options.isa)) RotaryFinder(graph, fused).run();
}

}  // namespace ipexrun::preload::graph
