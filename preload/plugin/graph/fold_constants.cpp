// What a program computes from numbers alone (masks, positions, tables) is the same in every call: computed once, while the graph is made.
// Weights are no constants here: the program may change them.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/stack.h>

#include <array>
#include <utility>

#include "preload/plugin/answer.h"
#include "preload/plugin/graph/constant_room.h"
#include "preload/plugin/graph/executor.h"
#include "preload/plugin/graph/passes.h"
#include "preload/plugin/graph/seen_outside.h"
#include "preload/plugin/tier.h"

namespace ipexrun::preload::graph {
namespace {

constexpr std::int64_t kMostKeptBytes = std::int64_t{16} << 20;  ///< of what one graph keeps

constinit thread_local std::int64_t* left_here = nullptr;

class ConstantStep final : public Step {
 public:
  explicit ConstantStep(const Node& node) : tensor_(node.arguments[0].constant), to_(node.outputs[0]) {}
  void run(Values& values) const override { values[static_cast<std::size_t>(to_)] = tensor_; }

 private:
  c10::IValue tensor_;
  Value to_;
};

std::unique_ptr<Step> make_constant_step(const Node& node) { return std::make_unique<ConstantStep>(node); }

class ConstantFolder {
 public:
  ConstantFolder(Graph* graph, Fused* fused) : graph_(*graph), fused_(*fused), known_(graph->facts.size()), seen_(seen_outside(*graph)) {}

  void run() {
    const TierOff by_stock;
    const at::AutoDispatchBelowADInplaceOrView below;
    std::vector<std::size_t> folded;
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (computes(graph_.nodes[i]) && compute(graph_.nodes[i])) folded.push_back(i);
    }
    if (folded.empty()) return;
    std::vector<bool> read(graph_.facts.size(), false);  // by somebody who is not folded
    auto next = folded.begin();
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (next != folded.end() && *next == i) {
        ++next;
        continue;
      }
      for (const Value value : Graph::reads(graph_.nodes[i])) read[static_cast<std::size_t>(value)] = true;
    }
    for (const std::size_t i : folded) keep(&graph_.nodes[i], read[static_cast<std::size_t>(graph_.nodes[i].outputs[0])]);
  }

 private:
  using Known = c10::IValue;  ///< a tensor; None: not known

  [[nodiscard]] bool constant(const Argument& argument) const {
    if (argument.kind == Argument::Kind::kValue)
      return argument.value == kNone || !known_[static_cast<std::size_t>(argument.value)].isNone();
    for (const Argument& element : argument.list) {
      if (!constant(element)) return false;
    }
    return true;
  }

  [[nodiscard]] bool computes(const Node& node) const {
    if (node.kind != Node::Kind::kOperator || !node.op || node.outputs.size() != 1 || node.op->hasTag(at::Tag::nondeterministic_seeded))
      return false;
    const Facts& facts = graph_.facts[static_cast<std::size_t>(node.outputs[0])];
    if (!facts.tensor || seen_[static_cast<std::size_t>(node.outputs[0])]) return false;
    std::int64_t bytes = static_cast<std::int64_t>(c10::elementSize(facts.dtype));
    for (const std::int64_t size : facts.sizes) {
      if (size < 0 || (size > 0 && bytes > kMostKeptBytes / size)) return false;
      bytes *= size;
    }
    for (const Argument& argument : node.arguments) {
      if (!constant(argument)) return false;
    }
    for (const char* name : {"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided"}) {  // not the same in every call
      if (node.op->operator_name().name == std::string("aten::") + name) return false;
    }
    return true;
  }

  bool compute(const Node& node) {
    try {
      Values values(graph_.facts.size());
      for (const Value value : Graph::reads(node)) values[static_cast<std::size_t>(value)] = known_[static_cast<std::size_t>(value)];
      make_operator_step(node)->run(values);
      c10::IValue& result = values[static_cast<std::size_t>(node.outputs[0])];
      if (!result.isTensor() || !result.toTensor().defined() || !plain(result.toTensor())) return false;
      const Facts& facts = graph_.facts[static_cast<std::size_t>(node.outputs[0])];
      if (result.toTensor().sizes() != at::IntArrayRef(facts.sizes) || result.toTensor().scalar_type() != facts.dtype) return false;
      known_[static_cast<std::size_t>(node.outputs[0])] = std::move(result);
      return true;
    } catch (const std::exception&) {  // raises in the program's call as well
      return false;
    }
  }

  /// Others read it: its value stands there. Else it goes with the dead.
  void keep(Node* node, bool read) {
    const c10::IValue& value = known_[static_cast<std::size_t>(node->outputs[0])];
    const std::int64_t bytes = static_cast<std::int64_t>(value.toTensor().storage().nbytes());
    if (!read || bytes > kMostKeptBytes - kept_bytes_ || !ConstantRoom::take(bytes)) return;
    kept_bytes_ += bytes;
    Node constant;
    constant.kind = Node::Kind::kOwn;
    constant.own_step = make_constant_step;
    constant.own_name = "constant";
    constant.arguments = {Argument::of(value)};
    constant.outputs = node->outputs;
    *node = std::move(constant);
    ++fused_.constants;
  }

  Graph& graph_;
  Fused& fused_;
  std::vector<Known> known_;
  std::vector<bool> seen_;
  std::int64_t kept_bytes_ = 0;
};

}  // namespace

ConstantRoom::ConstantRoom(std::int64_t* left) noexcept { left_here = left; }

ConstantRoom::~ConstantRoom() { left_here = nullptr; }

bool ConstantRoom::take(std::int64_t bytes) noexcept {
  if (left_here == nullptr) return true;
  if (bytes > *left_here) return false;
  *left_here -= bytes;
  return true;
}

void fold_constants(Graph* graph, Fused* fused) { ConstantFolder(graph, fused).run(); }

}  // namespace ipexrun::preload::graph
