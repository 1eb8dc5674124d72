// Norms in a graph: native_layer_norm of which nobody reads the statistics, and rms norm as programs write it out, in float32 or, for
// bf16, over a float32 copy: x * rsqrt(mean(x^2) + eps), rounded before or after the product with a weight.
#include <utility>

#include "kernels/normalize.h"
#include "preload/plugin/graph/match.h"
#include "preload/plugin/graph/norm_step.h"
#include "preload/plugin/graph/passes.h"
#include "preload/plugin/tier.h"
#include "preload/plugin/tier_state.h"

namespace ipexrun::preload::graph {
namespace {

/// A copy in another dtype, of the same layout.
bool is_cast(const Node& node) { return node.is("_to_copy", "") && node.arguments[6].constant.isNone(); }

Node norm_of(Value x, Value weight, Value bias, Argument eps, std::int64_t dims, std::int64_t form, Value result) {
  Node node;
  node.kind = Node::Kind::kOwn;
  node.own_step = make_norm_step;
  node.own_name = "norm";
  node.arguments = {Argument::of(x),     Argument::of(weight), Argument::of(bias),
                    Argument::of(kNone), std::move(eps),       Argument::of(c10::IValue(dims))};
  node.index = form;
  node.outputs = {result};
  return node;
}

class NormFinder {
 public:
  NormFinder(Graph* graph, Fused* fused) : graph_(*graph), fused_(*fused), match_(*graph) {}

  void run() {
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (!layer_norm(i)) rms_norm(i);
    }
  }

 private:
  /// Of one element a column, in an order that needs no stride.
  [[nodiscard]] bool is_parameter(Value value, std::int64_t columns, at::ScalarType dtype) const {
    const Facts& facts = match_.facts(value);
    return facts.tensor && facts.sizes.size() == 1 && facts.sizes[0] == columns && (facts.dtype == dtype || facts.dtype == at::kFloat);
  }

  bool layer_norm(std::size_t at) {
    const Node& node = graph_.nodes[at];
    if (!node.is("native_layer_norm", "")) return false;
    for (const Value statistic : {node.outputs[1], node.outputs[2]}) {
      if (!match_.readers(statistic).empty() || match_.is_result(statistic)) return false;
    }
    const Value x = value_of(node.arguments[0]);
    const auto shape = ints_of(node.arguments[1]);
    const auto eps = number_of(node.arguments[4]);
    if (x == kNone || !shape || shape->size() != 1 || !eps || !is_float(match_.facts(x).dtype)) return false;
    const Value weight = value_of(node.arguments[2]);
    const Value bias = value_of(node.arguments[3]);
    for (const Value parameter : {weight, bias}) {
      if (parameter != kNone && !is_parameter(parameter, (*shape)[0], match_.facts(x).dtype)) return false;
    }
    graph_.nodes[at] = norm_of(x, weight, bias, node.arguments[4], 1, kNormCentered, node.outputs[0]);
    ++fused_.norms;
    return true;
  }

  /// h where `node` is rsqrt(mean(h^2, the last dimension) + eps).
  [[nodiscard]] Value scaled_by(const Node* node, Argument* eps) const {
    if (node == nullptr || !node->is("rsqrt", "")) return kNone;
    const Node* sum = match_.maker(node->arguments[0]);
    if (sum == nullptr || !(sum->is("add", "Tensor") || sum->is("add", "Scalar")) || !is_number(sum->arguments[2], 1)) return kNone;
    const Value added = value_of(sum->arguments[1]);
    const bool one =
        added == kNone ? number_of(sum->arguments[1]).has_value() : match_.facts(added).tensor && match_.facts(added).sizes.empty();
    const Node* mean = match_.maker(sum->arguments[0]);
    if (!one || mean == nullptr || !mean->is("mean", "dim") || !mean->arguments[2].constant.isBool() ||
        !mean->arguments[2].constant.toBool() || !mean->arguments[3].constant.isNone()) {
      return kNone;
    }
    const Value squared = value_of(mean->arguments[0]);
    const Node* square = match_.maker(squared);
    const auto dims = ints_of(mean->arguments[1]);
    if (square == nullptr || !dims || dims->size() != 1) return kNone;
    const auto rank = static_cast<std::int64_t>(match_.facts(squared).sizes.size());
    if ((*dims)[0] != -1 && (*dims)[0] != rank - 1) return kNone;
    *eps = sum->arguments[1];
    if (square->is("pow", "Tensor_Scalar") && is_number(square->arguments[1], 2)) return value_of(square->arguments[0]);
    if (square->is("mul", "Tensor") && value_of(square->arguments[0]) == value_of(square->arguments[1]))
      return value_of(square->arguments[0]);
    return kNone;
  }

  void rms_norm(std::size_t at) {
    const Node& node = graph_.nodes[at];
    if (!node.is("mul", "Tensor")) return;
    Argument eps;
    Value wide = kNone;
    for (const std::size_t side : {0, 1}) {
      wide = scaled_by(match_.maker(node.arguments[side]), &eps);
      if (wide != kNone && node.arguments[1 - side].is_value(wide)) break;
      wide = kNone;
    }
    if (wide == kNone || match_.facts(wide).dtype != at::kFloat) return;
    Value x = wide;
    if (const Node* cast = match_.maker(wide); cast != nullptr && is_cast(*cast)) {
      const Value from = value_of(cast->arguments[0]);
      if (from != kNone && match_.facts(from).dtype == at::kBFloat16) x = from;
    }
    const Facts& facts = match_.facts(x);
    if (facts.sizes.empty() || facts.sizes.back() <= 0 || !facts.contiguous) return;
    follow(at, x, wide, eps);
  }

  /// From the product with rsqrt on: the weight, and for bf16 the copy back, in either order.
  void follow(std::size_t at, Value x, Value wide, const Argument& eps) {
    const Facts facts = match_.facts(x);
    Value weight = kNone;
    bool cast = false;
    Value value = graph_.nodes[at].outputs[0];
    std::size_t place = at;
    std::optional<Node> best;
    std::size_t last = at;
    while (true) {
      if (match_.facts(value).dtype == facts.dtype && match_.facts(value).sizes == facts.sizes) {
        best = norm_of(x, weight, kNone, eps, 1, 0, value);
        last = place;
      }
      const auto next = match_.reader(value);
      if (!next) break;
      const Node& node = graph_.nodes[*next];
      if (node.is("mul", "Tensor") && weight == kNone) {
        weight = beside(node, value);
        if (weight == kNone || !is_parameter(weight, facts.sizes.back(), facts.dtype)) break;
      } else if (is_cast(node) && x != wide && !cast && match_.facts(node.outputs[0]).dtype == facts.dtype) {
        cast = true;
      } else {
        break;
      }
      value = node.outputs[0];
      place = *next;
    }
    if (!best) return;
    graph_.nodes[last] = std::move(*best);
    ++fused_.norms;
  }

  Graph& graph_;
  Fused& fused_;
  Match match_;
};

}  // namespace

void find_norms(Graph* graph, Fused* fused) {
  if (kernels::normalize_supported(tier()->options.isa)) NormFinder(graph, fused).run();
}

}  // namespace ipexrun::preload::graph
