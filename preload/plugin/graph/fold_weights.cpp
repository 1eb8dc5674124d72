// What a program computes from its weights alone is the same in every call until it changes one of them: standardized weights, weight norm
// by parametrization, tables taken by fixed indices. One step a result, which is a weight itself for the passes behind.
#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "preload/plugin/graph/passes.h"
#include "preload/plugin/graph/seen_outside.h"
#include "preload/plugin/graph/weights_step.h"

namespace ipexrun::preload::graph {
namespace {

constexpr std::int64_t kMostGrowth = 2;  ///< bytes of a result over those of its weights

enum class Made : char { kElsewhere, kOfWeights, kWorkOnWeights };

bool is_named(const Node& node, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(),
                     [&](const char* name) { return node.op->operator_name().name == std::string("aten::") + name; });
}

/// The same in every call with the same arguments.
bool is_pure(const Node& node) {
  if (!node.op || node.op->schema().is_mutable() || node.op->hasTag(at::Tag::nondeterministic_seeded)) return false;
  if (node.kind == Node::Kind::kOwn)
    return std::string_view(node.own_name) == "instance norm" || std::string_view(node.own_name) == "var" ||
           std::string_view(node.own_name) == "std";
  return node.kind == Node::Kind::kOperator && !is_named(node, {"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided",
                                                                "dropout", "native_dropout", "bernoulli"});
}

/// More than another view, type or place of the same numbers, which steps of products see through or make when they pack.
bool is_work(const Node& node) {
  for (const c10::Argument& result : node.op->schema().returns()) {
    if (result.alias_info() != nullptr) return false;
  }
  return !is_named(node, {"_to_copy", "clone", "copy", "lift_fresh_copy", "_unsafe_view", "view_copy", "reshape", "contiguous", "to"});
}

class WeightFolder {
 public:
  explicit WeightFolder(Graph* graph) : graph_(*graph), made_(graph->facts.size(), Made::kElsewhere), makers_(graph->facts.size(), 0) {}

  int run() {
    look();
    std::vector<std::pair<std::size_t, Node>> steps;  // behind which node each stands
    seen_ = seen_outside(graph_);
    for (const Value value : frontier()) {
      if (auto step = step_for(value)) steps.emplace_back(makers_[at(value)], std::move(*step));
    }
    insert(std::move(steps));
    return count_;
  }

 private:
  static std::size_t at(Value value) { return static_cast<std::size_t>(value); }

  void look() {
    for (const Value input : graph_.inputs) {
      if (graph_.facts[at(input)].weight) made_[at(input)] = Made::kOfWeights;
    }
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      for (const Value value : node.outputs) makers_[at(value)] = i;
      if (!is_pure(node)) continue;
      bool all = true, work = false, any = false;
      for (const Value value : Graph::reads(node)) {
        if (value == kNone) continue;
        any = true;
        all = all && made_[at(value)] != Made::kElsewhere;
        work = work || made_[at(value)] == Made::kWorkOnWeights;
      }
      if (!all) continue;
      for (const Value value : node.outputs) made_[at(value)] = work || (any && is_work(node)) ? Made::kWorkOnWeights : Made::kOfWeights;
    }
  }

  /// Results of such work that other nodes read, in order.
  [[nodiscard]] std::vector<Value> frontier() const {
    std::vector<bool> read(graph_.facts.size(), false);
    for (const Node& node : graph_.nodes) {
      const bool inside = !node.outputs.empty() && made_[at(node.outputs[0])] == Made::kWorkOnWeights;
      for (const Value value : Graph::reads(node)) {
        if (value == kNone || inside || made_[at(value)] != Made::kWorkOnWeights) continue;
        if (!seen_[at(value)] || !may_view(node)) read[at(value)] = true;
      }
    }
    std::vector<Value> found;
    for (std::size_t i = 0; i < read.size(); ++i) {
      if (read[i]) found.push_back(static_cast<Value>(i));
    }
    return found;
  }

  /// Bytes of a tensor of known sizes; -1 otherwise.
  [[nodiscard]] std::int64_t bytes_of(Value value) const {
    const Facts& facts = graph_.facts[at(value)];
    if (!facts.tensor || facts.dtype == at::ScalarType::Undefined) return -1;
    std::int64_t bytes = static_cast<std::int64_t>(c10::elementSize(facts.dtype));
    for (const std::int64_t size : facts.sizes) {
      if (size < 0 || (size > 0 && bytes > INT64_MAX / size)) return -1;
      bytes *= size;
    }
    return bytes;
  }

  std::optional<Node> step_for(Value value) {
    std::vector<bool> wanted(graph_.nodes.size(), false);
    std::vector<Value> weights, open{value};
    while (!open.empty()) {
      const Value next = open.back();
      open.pop_back();
      if (is_input(next)) {
        if (std::find(weights.begin(), weights.end(), next) == weights.end()) weights.push_back(next);
        continue;
      }
      if (wanted[makers_[at(next)]]) continue;
      wanted[makers_[at(next)]] = true;
      for (const Value read : Graph::reads(graph_.nodes[makers_[at(next)]])) {
        if (read != kNone) open.push_back(read);
      }
    }
    std::int64_t given = 0;
    for (const Value weight : weights) given += std::max<std::int64_t>(bytes_of(weight), 0);
    const std::int64_t bytes = bytes_of(value);
    if (weights.empty() || bytes <= 0 || bytes > kMostGrowth * given) return std::nullopt;

    auto inside = std::make_shared<Graph>();
    std::unordered_map<Value, Value> names;
    const auto name_of = [&](Value old) {
      if (old == kNone) return kNone;
      const auto [entry, is_new] = names.try_emplace(old, kNone);
      if (is_new) entry->second = inside->add_value(graph_.facts[at(old)]);
      return entry->second;
    };
    Node step;
    for (const Value weight : weights) {
      inside->inputs.push_back(name_of(weight));
      step.arguments.push_back(Argument::of(weight));
    }
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (!wanted[i]) continue;
      Node node = graph_.nodes[i];
      for (Argument& argument : node.arguments) rename(&argument, name_of);
      for (Value& output : node.outputs) output = name_of(output);
      inside->nodes.push_back(std::move(node));
    }
    inside->outputs.push_back(Argument::of(name_of(value)));
    step.kind = Node::Kind::kOwn;
    step.own_step = make_weights_step;
    step.own_name = "of weights";
    step.inside = std::move(inside);
    step.outputs = {value};
    return step;
  }

  [[nodiscard]] bool is_input(Value value) const {
    return std::find(graph_.inputs.begin(), graph_.inputs.end(), value) != graph_.inputs.end();
  }

  template <typename NameOf>
  static void rename(Argument* argument, const NameOf& name_of) {
    if (argument->kind == Argument::Kind::kValue) argument->value = name_of(argument->value);
    for (Argument& element : argument->list) rename(&element, name_of);
  }

  /// What the program gets as well (torch.nn.utils.weight_norm leaves the weight in its module) is made for it in each call, since it may
  /// write into that; operators whose results are none of its memory read the step's.
  void read_instead(Value before, Value after, std::size_t first) {
    std::vector<Value> names(graph_.facts.size());
    std::iota(names.begin(), names.end(), Value{0});
    names[at(before)] = after;
    for (std::size_t i = first; i < graph_.nodes.size(); ++i) {
      if (!may_view(graph_.nodes[i])) graph::rename(&graph_.nodes[i], names);
    }
  }

  /// Each behind the node that made the value; all behind it read the step's. The nodes that it stands for die where nobody else reads
  /// them.
  void insert(std::vector<std::pair<std::size_t, Node>> steps) {
    std::stable_sort(steps.begin(), steps.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    for (auto& [place, step] : steps) {
      const Value before = step.outputs[0];
      Facts facts = graph_.facts[at(before)];
      facts.weight = true;
      step.outputs[0] = graph_.add_value(std::move(facts));
      if (seen_[at(before)]) {
        read_instead(before, step.outputs[0], place + 1);
      } else {
        graph_.replace(before, step.outputs[0], place + 1);
      }
      graph_.nodes.insert(graph_.nodes.begin() + static_cast<std::ptrdiff_t>(place) + 1, std::move(step));
      ++count_;
    }
  }

  Graph& graph_;
  std::vector<Made> made_;
  std::vector<std::size_t> makers_;
  std::vector<bool> seen_;
  int count_ = 0;
};

}  // namespace

void fold_weights(Graph* graph, Fused* fused) { fused->of_weights += WeightFolder(graph).run(); }

}  // namespace ipexrun::preload::graph
