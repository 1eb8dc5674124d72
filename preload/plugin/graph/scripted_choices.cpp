#include "preload/plugin/graph/scripted_choices.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace ipexrun::preload::graph {
namespace {

namespace jit = torch::jit;
namespace prim = torch::jit::prim;

using Names = std::unordered_set<std::string_view>;

/// Which result says where something was found; with one result alone those that have two (max, median) find nothing.
const std::unordered_map<std::string_view, std::size_t>& positions_of() {
  static const auto* made = new std::unordered_map<std::string_view, std::size_t>{
      {"topk", 1}, {"sort", 1},    {"max", 1},    {"min", 1},    {"kthvalue", 1},     {"median", 1},   {"nanmedian", 1},
      {"mode", 1}, {"argsort", 0}, {"argmax", 0}, {"argmin", 0}, {"searchsorted", 0}, {"bucketize", 0}};
  return *made;
}
const Names& comparisons() {
  static const auto* made = new Names{"lt", "le", "gt", "ge", "eq", "ne"};
  return *made;
}
const Names& taking_by_mask() {
  static const auto* made = new Names{"nonzero",    "nonzero_numpy", "nonzero_static", "index", "index_put",
                                      "index_put_", "masked_select", "item",           "Bool",  "is_nonzero"};
  return *made;
}
/// What gives a mask of masks where the dtype of its result is not known.
const Names& of_masks() {
  static const auto* made =
      new Names{"__and__",    "__or__",      "__xor__", "logical_and", "logical_or", "logical_xor", "logical_not", "bitwise_and",
                "bitwise_or", "bitwise_not", "all",     "any",         "clone",      "view",        "reshape",     "flatten",
                "unsqueeze",  "squeeze",     "expand",  "expand_as",   "select",     "slice",       "detach"};
  return *made;
}

bool is_tensor(const jit::Value* value) { return value->type()->isSubtypeOf(*c10::TensorType::get()); }

std::optional<at::ScalarType> dtype_of(const jit::Value* value) {
  const auto type = value->type()->cast<c10::TensorType>();
  return type == nullptr ? std::nullopt : type->scalarType();
}

bool may_float(const jit::Value* value) {
  return is_tensor(value) && value->node()->kind() != prim::NumToTensor && at::isFloatingType(dtype_of(value).value_or(at::kFloat));
}

class Search {
 public:
  explicit Search(const jit::Graph& graph) : results_(graph.return_node()) {}

  bool run(const jit::Block* block) {
    for (const jit::Node* node : block->nodes()) {
      if (chooses(node)) return true;
      for (const jit::Block* inner : node->blocks()) {
        if (run(inner)) return true;
      }
      if (node->kind() == prim::If) carry_out(node);
    }
    return false;
  }

 private:
  bool chooses(const jit::Node* node) {
    const auto inputs = node->inputs();
    const bool masked = std::any_of(inputs.begin(), inputs.end(), [&](const jit::Value* one) { return masks_.count(one) > 0; });
    if (node->kind() == prim::ListConstruct && masked) masks_.insert(node->output());
    if (!node->kind().is_aten()) return false;
    const std::string_view name = node->kind().toUnqualString();
    if (masked && taking_by_mask().count(name) > 0) return true;
    const bool floats = std::any_of(inputs.begin(), inputs.end(), may_float);
    if (floats && comparisons().count(name) > 0 && is_tensor(node->output())) masks_.insert(node->output());
    if (masked) carry(node, name);
    const auto found = positions_of().find(name);
    return floats && found != positions_of().end() && found->second < node->outputs().size() && is_tensor(node->output(found->second)) &&
           is_used(node->output(found->second));
  }

  void carry(const jit::Node* node, std::string_view name) {
    for (const jit::Value* output : node->outputs()) {
      const auto dtype = dtype_of(output);
      if (is_tensor(output) && (dtype ? *dtype == at::kBool : of_masks().count(name) > 0)) masks_.insert(output);
    }
  }

  void carry_out(const jit::Node* node) {
    for (const jit::Block* inner : node->blocks()) {
      for (std::size_t i = 0; i < node->outputs().size(); ++i) {
        if (masks_.count(inner->outputs()[i]) > 0) masks_.insert(node->output(i));
      }
    }
  }

  /// For more than being a result of the graph.
  [[nodiscard]] bool is_used(const jit::Value* value) const {
    const auto& uses = value->uses();
    return std::any_of(uses.begin(), uses.end(), [&](const jit::Use& use) {
      const jit::Node* user = use.user;
      if (user == results_) return false;
      if (user->kind() == prim::TupleConstruct || user->kind() == prim::ListConstruct || user->kind() == prim::DictConstruct)
        return is_used(user->output());
      const jit::Node* owner = user->kind() == prim::Return ? user->owningBlock()->owningNode() : nullptr;
      return owner == nullptr || owner->kind() != prim::If || is_used(owner->output(use.offset));
    });
  }

  const jit::Node* results_;
  std::unordered_set<const jit::Value*> masks_;
};

}  // namespace

bool chooses_by_values(const torch::jit::Graph& graph) { return Search(graph).run(graph.block()); }

}  // namespace ipexrun::preload::graph
