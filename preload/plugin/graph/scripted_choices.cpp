#include "preload/plugin/graph/scripted_choices.h"

#include <algorithm>
#include <optional>
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
  static const auto* made = new Names{"nonzero", "nonzero_numpy", "nonzero_static", "index", "index_put", "index_put_", "masked_select",
                                      "item",    "Bool",          "is_nonzero",     "Int",   "Float",     "IntImplicit"};
  return *made;
}
/// Results of these move by steps alone.
const Names& jumping() {
  static const auto* made =
      new Names{"round", "floor", "ceil", "trunc", "fix", "floor_divide", "poisson", "sign", "sgn", "heaviside", "bernoulli"};
  return *made;
}
/// Where steps meet the values that they were made of, both sides most often meet where they turn (a relu written out).
const Names& meeting() {
  static const auto* made = new Names{"mul", "div", "where", "masked_fill"};
  return *made;
}
/// What gives a mask of masks where the dtype of its result is not known.
const Names& of_masks() {
  static const auto* made = new Names{
      "__and__",     "__or__",  "__xor__", "logical_and", "logical_or",    "logical_xor", "logical_not", "bitwise_and", "bitwise_or",
      "bitwise_not", "all",     "any",     "sum",         "count_nonzero", "clone",       "view",        "reshape",     "flatten",
      "unsqueeze",   "squeeze", "expand",  "expand_as",   "select",        "slice",       "detach"};
  return *made;
}

/// Whether whole numbers in this argument say what is taken, or how often.
bool takes_by_numbers(const jit::Node* node, std::size_t input) {
  static const auto* say_what = new Names{"index", "indices", "offsets", "repeats"};
  const c10::FunctionSchema* schema = node->maybeSchema();
  return schema != nullptr && input < schema->arguments().size() && say_what->count(schema->arguments()[input].name()) > 0;
}

std::string_view without_in_place(std::string_view name) {
  if (name.ends_with('_') && !name.ends_with("__")) name.remove_suffix(1);
  return name;
}

/// Whether steps are as good as none because they are many: a limit of constants stands right before or behind, as where bytes are made.
bool has_many_steps(const jit::Node* node) {
  constexpr double kMany = 50;
  const auto limits = [](const jit::Node* near) {
    const std::string_view name = without_in_place(near->kind().toUnqualString());
    if (!near->kind().is_aten() || (name != "clamp" && name != "hardtanh") || near->inputs().size() < 3) return false;
    const auto least = jit::toIValue(near->input(1));
    const auto most = jit::toIValue(near->input(2));
    return least && most && least->isScalar() && most->isScalar() && most->toScalar().toDouble() - least->toScalar().toDouble() >= kMany;
  };
  const auto& uses = node->output()->uses();
  return limits(node->input(0)->node()) || std::any_of(uses.begin(), uses.end(), [&](const jit::Use& use) { return limits(use.user); });
}

bool is_tensor(const jit::Value* value) { return value->type()->isSubtypeOf(*c10::TensorType::get()); }

std::optional<at::ScalarType> dtype_of(const jit::Value* value) {
  const auto type = value->type()->cast<c10::TensorType>();
  return type == nullptr ? std::nullopt : type->scalarType();
}

/// What a tensor is, not what it holds.
const Names& of_shapes() {
  static const auto* made =
      new Names{"size", "dim", "len", "numel", "stride", "is_floating_point", "is_complex", "__is__", "__isnot__", "_shape_as_tensor"};
  return *made;
}

class Search {
 public:
  explicit Search(const jit::Graph& graph) : results_(graph.return_node()) {}

  bool run(const jit::Block* block) {
    for (const jit::Node* node : block->nodes()) {
      if (chooses(node)) return true;
      const bool loop = node->kind() == prim::Loop;
      for (int time = 0; time < (loop ? 2 : 1); ++time) {  // what a loop carries comes in again
        for (const jit::Block* inner : node->blocks()) {
          if (loop) carry_in(node, inner);
          if (run(inner)) return true;
        }
      }
      if (node->kind() == prim::If) carry_out(node, 0);
      if (!loop) continue;
      carry_out(node, 1);
      if (masks_.count(node->blocks()[0]->outputs()[0]) > 0) return true;  // how often it turns
    }
    return false;
  }

 private:
  bool chooses(const jit::Node* node) {
    const auto inputs = node->inputs();
    const auto any_of = [&](const std::unordered_set<const jit::Value*>& found) {
      return std::any_of(inputs.begin(), inputs.end(), [&](const jit::Value* one) { return found.count(one) > 0; });
    };
    const bool masked = any_of(masks_);
    const bool rounded = any_of(rounded_);
    if (!node->kind().is_aten()) {
      const bool packs = node->kind() == prim::ListConstruct || node->kind() == prim::TupleConstruct || node->kind() == prim::ListUnpack ||
                         node->kind() == prim::TupleUnpack || node->kind() == prim::TupleIndex || node->kind() == prim::unchecked_cast;
      for (const jit::Value* output : node->outputs()) {
        if (packs && masked) masks_.insert(output);
        if (packs && rounded) rounded_.insert(output);
        if (packs && any_of(stepped_)) stepped_.insert(output);
      }
      return node->kind() == prim::If && masked;
    }
    const std::string_view name = node->kind().toUnqualString();
    if (of_shapes().count(name) > 0 || name.ends_with("_like") || name.starts_with("new_")) return false;
    if (masked && (taking_by_mask().count(name) > 0 || (name == "where" && inputs.size() == 1))) return true;
    for (std::size_t i = 0; i < inputs.size() && rounded; ++i) {
      if (rounded_.count(inputs[i]) > 0 && takes_by_numbers(node, i)) return true;
    }
    if (rounded && comparisons().count(name) > 0) masks_.insert(node->output());  // of tensors, and of numbers that were read from one
    if (masked) carry(node, name);
    const bool rounds = is_product(node);
    if (rounds && any_of(stepped_)) return true;
    if (!rounds && moves_by_steps(node, without_in_place(name), masked, rounded)) {
      for (const jit::Value* output : node->outputs()) {
        if (is_tensor(output) && masks_.count(output) == 0) stepped_.insert(output);
      }
    }
    for (const jit::Value* output : node->outputs()) {
      if (rounds || (rounded && masks_.count(output) == 0)) rounded_.insert(output);
    }
    const auto found = positions_of().find(name);
    return rounded && found != positions_of().end() && found->second < node->outputs().size() && is_tensor(node->output(found->second)) &&
           is_used(node->output(found->second));
  }

  bool moves_by_steps(const jit::Node* node, std::string_view name, bool masked, bool rounded) const {
    const bool divides = name == "div" && node->inputs().size() > 2;
    if (rounded && (divides || jumping().count(name) > 0)) return !has_many_steps(node);
    const auto inputs = node->inputs();
    const bool reads = std::any_of(inputs.begin(), inputs.end(), [&](const jit::Value* one) { return stepped_.count(one) > 0; });
    const bool continuous = std::any_of(inputs.begin(), inputs.end(), [&](const jit::Value* one) {
      return is_tensor(one) && rounded_.count(one) > 0 && masks_.count(one) == 0 && stepped_.count(one) == 0;
    });
    return (reads || masked) && !(continuous && meeting().count(name) > 0);
  }

  void carry(const jit::Node* node, std::string_view name) {
    for (const jit::Value* output : node->outputs()) {
      const auto dtype = dtype_of(output);
      if (is_tensor(output) && ((dtype && *dtype == at::kBool) || of_masks().count(name) > 0)) masks_.insert(output);
    }
  }

  /// `first`: of what a block returns, behind the condition of a loop.
  void carry_out(const jit::Node* node, std::size_t first) {
    for (const jit::Block* inner : node->blocks()) {
      for (std::size_t i = 0; i < node->outputs().size(); ++i) carry_over(inner->outputs()[i + first], node->output(i));
    }
  }

  /// A loop has a number and a condition in front of what it carries, its block the number of the turn.
  void carry_in(const jit::Node* loop, const jit::Block* inner) {
    for (std::size_t i = 1; i < inner->inputs().size(); ++i) {
      carry_over(loop->input(i + 1), inner->inputs()[i]);
      carry_over(inner->outputs()[i], inner->inputs()[i]);
    }
  }

  void carry_over(const jit::Value* from, const jit::Value* to) {
    if (masks_.count(from) > 0) masks_.insert(to);
    if (rounded_.count(from) > 0) rounded_.insert(to);
    if (stepped_.count(from) > 0) stepped_.insert(to);
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
  std::unordered_set<const jit::Value*> rounded_;  ///< come from products
  std::unordered_set<const jit::Value*> masks_;    ///< say where a comparison of such holds
  std::unordered_set<const jit::Value*> stepped_;  ///< come from products, and move by steps alone
};

}  // namespace

bool is_product(const torch::jit::Node* node) {
  static const auto* products = new Names{"linear", "addmm",  "mm",     "matmul",       "bmm",         "baddbmm",
                                          "conv1d", "conv2d", "conv3d", "_convolution", "convolution", "scaled_dot_product_attention"};
  return node->kind().is_aten() && products->count(node->kind().toUnqualString()) > 0;
}

bool chooses_by_values(const torch::jit::Graph& graph) { return Search(graph).run(graph.block()); }

}  // namespace ipexrun::preload::graph
