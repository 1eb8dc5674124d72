// One way through the graph: operators that Inductor compiles well are gathered; any other node goes before them where it reads nothing of
// theirs, and ends the part where it does. Views that others read are made behind the part, of what they are views of, so that no result
// shares memory.
#include "preload/plugin/graph/find_parts.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "preload/plugin/graph/match.h"
#include "preload/plugin/graph/part_text.h"
#include "preload/plugin/graph/passes.h"

namespace ipexrun::preload::graph {
namespace {

constexpr int kLeastOperators = 2;                         ///< that compute something
constexpr std::int64_t kLeastNs = 30'000;                  ///< of their time: calling what was compiled costs some microseconds
constexpr double kLeastShare = 0.005;                      ///< of the call
constexpr std::size_t kMostNodes = 2000;                   ///< of one part: g++ takes time
constexpr std::size_t kMostBytes = std::size_t{64} << 10;  ///< of one constant

/// How a value looked in the call.
struct Seen {
  bool tensor = false;
  bool number = false;
  bool plain = false;  ///< of a dtype and kind that may be handed to compiled code
  PartInput look;
};

Seen look_at(const c10::IValue& value) {
  Seen seen;
  if (value.isInt()) {
    seen.number = true;
    seen.look.number = value.toInt();
  } else if (value.isTensor() && value.toTensor().defined()) {
    const at::Tensor& tensor = value.toTensor();
    seen.tensor = seen.look.tensor = true;
    seen.plain = tensor.device().is_cpu() && tensor.layout() == at::kStrided && !tensor.is_complex() && !tensor.is_quantized() &&
                 !tensor.is_neg() && tensor.numel() > 0;
    seen.look.dtype = tensor.scalar_type();
    if (seen.plain) {
      seen.look.sizes = tensor.sizes().vec();
      seen.look.strides = tensor.strides().vec();
    }
  }
  return seen;
}

bool is_view(const Node& node) {
  if (node.kind == Node::Kind::kItem) return true;
  if (node.kind != Node::Kind::kOperator) return false;
  const auto& returns = node.op->schema().returns();
  return !returns.empty() && std::all_of(returns.begin(), returns.end(), [](const c10::Argument& result) {
    return result.alias_info() != nullptr && !result.alias_info()->isWrite();
  });
}

/// For these there are kernels of ours or of oneDNN, or Inductor would call torch's own; or places are given by values, and of several
/// threads the one that finds a place outside ends the program (std::terminate) where torch's operators raise IndexError.
bool stays(std::string_view name) {
  // clang-format off
  static constexpr std::array kNames = {
      "addmv", "mv", "dot", "vdot", "linear", "matmul", "addbmm", "einsum", "sort", "topk", "kthvalue", "median", "mode", "searchsorted", "bucketize",
      "index_put", "scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy", "masked_scatter", "empty", "empty_like",
      "empty_strided", "new_empty", "new_empty_strided", "histc", "bincount", "unique_consecutive", "lstm", "gru", "cumsum", "cumprod",
      "gather", "index", "index_select", "index_fill", "embedding", "take", "nll_loss_forward", "nll_loss2d_forward", "logcumsumexp",
      "grid_sampler_2d", "grid_sampler_3d", "cdist", "_cdist_forward", "im2col", "col2im", "stft", "istft", "native_dropout"};
  static constexpr std::array kPrefixes = {
      "convolution", "_convolution", "mkldnn", "_mkldnn", "_scaled_dot_product", "_embedding_bag", "max_pool", "avg_pool",
      "adaptive_", "_adaptive", "upsample_", "_upsample", "fft_", "_fft", "linalg_", "_linalg", "_int_mm", "_weight_int",
      "cholesky", "triangular", "lu_", "_lu", "cummax", "cummin"};
  // clang-format on
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end() ||
         std::any_of(kPrefixes.begin(), kPrefixes.end(), [&](const char* prefix) { return name.starts_with(prefix); });
}

class PartFinder {
 public:
  PartFinder(Graph* graph, bool bf16, const Values& inputs, bool all) : graph_(*graph), bf16_(bf16), all_(all) { watch(inputs); }

  Parts run() {
    uses_ = graph_.uses();
    for (Node& node : graph_.nodes) {
      if (fits(node)) {
        for (const Value value : node.outputs) made_.insert(value);
        time_ns_ += node_ns_[static_cast<std::size_t>(&node - graph_.nodes.data())];
        open_.push_back(std::move(node));
        if (open_.size() >= kMostNodes) close();
        continue;
      }
      const std::vector<Value> reads = Graph::reads(node);
      if (std::any_of(reads.begin(), reads.end(), [&](Value value) { return made_.contains(value); })) close();
      nodes_.push_back(std::move(node));
    }
    close();
    graph_.nodes = std::move(nodes_);
    for (const auto& [wide, narrow] : narrowed_) read_narrow(wide, narrow);
    return std::move(found_);
  }

 private:
  [[nodiscard]] const Seen& seen(Value value) const { return seen_[static_cast<std::size_t>(value)]; }

  void watch(const Values& inputs) {
    seen_.resize(graph_.facts.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) seen_[static_cast<std::size_t>(graph_.inputs[i])] = look_at(inputs[i]);
    const Program program(graph_);
    program.run(inputs);  // packs
    const Watch look = [&](std::size_t step, const Values& values) {
      for (const Value value : graph_.nodes[step].outputs)
        seen_[static_cast<std::size_t>(value)] = look_at(values[static_cast<std::size_t>(value)]);
    };
    program.run(inputs, &node_ns_, &look);
    for (const std::int64_t ns : node_ns_) found_.whole_ns += ns;
  }

  [[nodiscard]] bool is_product_of_vectors(const Node& node) const {
    const std::size_t a = node.is("addmm", "") || node.is("baddbmm", "") ? 1 : 0;
    if (a == 0 && !node.is("mm", "") && !node.is("bmm", "")) return false;
    const Value left = value_of(node.arguments[a]);
    const Value right = value_of(node.arguments[a + 1]);
    if (left == kNone || right == kNone || !seen(left).plain || !seen(right).plain) return false;
    const auto& rows = seen(left).look.sizes;
    const auto& columns = seen(right).look.sizes;
    return rows.size() >= 2 && columns.size() >= 2 && (rows[rows.size() - 2] == 1 || columns.back() == 1);
  }

  /// Whole numbers: torch's operators raise, while compiled quotients end the program (SIGFPE).
  [[nodiscard]] bool may_divide_by_zero(const Node& node, std::string_view name) const {
    if (name != "div" && name != "floor_divide" && name != "remainder" && name != "fmod") return false;
    const Seen& result = seen(node.outputs[0]);
    if (!result.tensor || !at::isIntegralType(result.look.dtype, true)) return false;
    const Argument& divisor = node.arguments[1];
    return divisor.kind != Argument::Kind::kConstant || !divisor.constant.isInt() || divisor.constant.toInt() == 0;
  }

  [[nodiscard]] bool fits(const Node& node) const {
    if (node.kind == Node::Kind::kItem) return made_.contains(node.arguments[0].value) && seen(node.outputs[0]).plain;
    if (node.kind != Node::Kind::kOperator || node.outputs.empty()) return false;
    const std::string_view full = node.op->operator_name().name;
    if (!full.starts_with("aten::")) return false;
    const std::string_view name = full.substr(6);
    const bool product = name == "mm" || name == "bmm" || name == "addmm" || name == "baddbmm";
    if (product ? !is_product_of_vectors(node) : stays(name) || may_divide_by_zero(node, name)) return false;
    if (node.op->hasTag(at::Tag::nondeterministic_seeded) || node.op->hasTag(at::Tag::dynamic_output_shape) ||
        node.op->hasTag(at::Tag::data_dependent_output)) {
      return false;
    }
    for (const Value value : Graph::reads(node)) {
      if (!made_.contains(value) && !seen(value).plain && !seen(value).number) return false;
    }
    if (!small_constants(node.arguments)) return false;
    const bool view = is_view(node);
    return std::all_of(node.outputs.begin(), node.outputs.end(),
                       [&](Value value) { return seen(value).plain || (view && !seen(value).tensor && !seen(value).number); });
  }

  static bool small_constants(const std::vector<Argument>& arguments) {
    return std::all_of(arguments.begin(), arguments.end(), [](const Argument& argument) {
      if (argument.kind == Argument::Kind::kList) return small_constants(argument.list);
      if (argument.kind != Argument::Kind::kConstant || !argument.constant.isTensor()) return true;
      const at::Tensor& tensor = argument.constant.toTensor();
      return tensor.defined() && look_at(argument.constant).plain && tensor.nbytes() <= kMostBytes;
    });
  }

  /// The open nodes become a part, or stay what they are.
  void close() {
    std::vector<Node> open = std::move(open_);
    const std::int64_t ns = std::exchange(time_ns_, 0);
    open_.clear();
    made_.clear();
    const auto computing = std::count_if(open.begin(), open.end(), [](const Node& node) { return !is_view(node); });
    const bool is_short = ns < kLeastNs || static_cast<double>(ns) < kLeastShare * static_cast<double>(found_.whole_ns);
    if (computing < kLeastOperators || (is_short && !all_)) {
      std::move(open.begin(), open.end(), std::back_inserter(nodes_));
      return;
    }
    std::vector<Node> behind = views_behind(&open);
    std::vector<Value> outputs;
    std::map<Value, int> inside = reads_inside(open);
    for (const Node& node : open) {
      for (const Value value : node.outputs) {
        if (uses_[static_cast<std::size_t>(value)] > inside[value]) outputs.push_back(value);
      }
    }
    if (outputs.empty()) return;  // nobody reads anything of it
    if (bf16_) add_narrow(&open, &outputs, behind);
    try {
      nodes_.push_back(part_of(open, outputs, ns));
    } catch (const std::invalid_argument&) {  // a constant that no text can hold
      std::move(open.begin(), open.end(), std::back_inserter(nodes_));
    }
    std::move(behind.begin(), behind.end(), std::back_inserter(nodes_));
  }

  static std::map<Value, int> reads_inside(const std::vector<Node>& nodes) {
    std::map<Value, int> inside;
    for (const Node& node : nodes) {
      for (const Value value : Graph::reads(node)) ++inside[value];
    }
    return inside;
  }

  /// Views among the nodes that somebody else reads, taken out; where nodes that stay read them too, these get views of their own.
  std::vector<Node> views_behind(std::vector<Node>* open) {
    std::vector<Node> behind;
    std::vector<Node> stay;
    std::map<Value, int> inside = reads_inside(*open);
    for (std::size_t i = open->size(); i-- > 0;) {
      Node& node = (*open)[i];
      const auto read_elsewhere = [&](Value value) { return uses_[static_cast<std::size_t>(value)] > inside[value]; };
      if (!is_view(node) || std::none_of(node.outputs.begin(), node.outputs.end(), read_elsewhere)) {
        stay.push_back(std::move(node));
        continue;
      }
      behind.push_back(node);
      if (std::none_of(node.outputs.begin(), node.outputs.end(), [&](Value value) { return inside[value] > 0; })) {
        for (const Value value : Graph::reads(node)) --inside[value];
        continue;
      }
      for (const Value value : Graph::reads(node)) ++uses_[static_cast<std::size_t>(value)];
      for (Value& value : node.outputs) {
        const Value own = copy_of(value);
        for (Node& reader : stay) {
          for (Argument& argument : reader.arguments) substitute(&argument, value, own);
        }
        inside[own] = uses_[static_cast<std::size_t>(own)] = inside[value];
        uses_[static_cast<std::size_t>(value)] -= std::exchange(inside[value], 0);
        value = own;
      }
      stay.push_back(std::move(node));
    }
    std::reverse(stay.begin(), stay.end());
    std::reverse(behind.begin(), behind.end());
    *open = std::move(stay);
    return behind;
  }

  static void substitute(Argument* argument, Value from, Value to) {
    if (argument->is_value(from)) argument->value = to;
    for (Argument& element : argument->list) substitute(&element, from, to);
  }

  Value copy_of(Value value) {
    Facts facts = graph_.facts[static_cast<std::size_t>(value)];
    Seen look = seen(value);
    seen_.push_back(std::move(look));
    uses_.push_back(0);
    return graph_.add_value(std::move(facts));
  }

  /// float32 that only products of ours read, which would round it to bf16 themselves, leaves the part as bf16.
  void add_narrow(std::vector<Node>* open, std::vector<Value>* outputs, const std::vector<Node>& behind) {
    const auto cast = c10::Dispatcher::singleton().findSchema({"aten::_to_copy", ""});
    if (!cast) return;
    for (Value& output : *outputs) {
      if (seen(output).look.dtype != at::kFloat || !only_products_read(output, behind)) continue;
      const Value narrow = copy_of(output);
      graph_.facts[static_cast<std::size_t>(narrow)].dtype = at::kBFloat16;
      seen_[static_cast<std::size_t>(narrow)].look.dtype = at::kBFloat16;
      Node node;
      node.op = cast;
      node.arguments.push_back(Argument::of(output));
      for (std::size_t i = 1; i < cast->schema().arguments().size(); ++i) {
        const c10::Argument& argument = cast->schema().arguments()[i];
        node.arguments.push_back(Argument::of(i == 1 ? c10::IValue(static_cast<std::int64_t>(at::kBFloat16))
                                                     : argument.default_value().value_or(c10::IValue())));
      }
      node.outputs = {narrow};
      open->push_back(std::move(node));
      narrowed_.emplace_back(output, narrow);
      output = narrow;
    }
  }

  /// Products alone, through views. Whoever reads the value comes later in the graph, or is one of the views behind the part.
  [[nodiscard]] bool only_products_read(Value value, const std::vector<Node>& behind) const {
    for (const Argument& output : graph_.outputs) {
      if (output.is_value(value)) return false;
    }
    bool any = false;
    const auto suits = [&](const Node& node) {
      const std::vector<Value> reads = Graph::reads(node);
      if (std::find(reads.begin(), reads.end(), value) == reads.end()) return true;
      any = true;
      if (is_view(node) && node.kind == Node::Kind::kOperator && node.outputs.size() == 1)
        return only_products_read(node.outputs[0], behind);
      const Linear& linear = node.linear;
      return node.kind == Node::Kind::kLinear && linear.x == value && linear.other != value && linear.weight != value &&
             linear.bias != value && graph_.facts[static_cast<std::size_t>(linear.weight)].dtype == at::kFloat;
    };
    return std::all_of(behind.begin(), behind.end(), suits) && std::all_of(graph_.nodes.begin(), graph_.nodes.end(), suits) && any;
  }

  void read_narrow(Value wide, Value narrow) {
    for (Node& node : graph_.nodes) {
      if (node.kind == Node::Kind::kLinear && node.linear.x == wide) node.linear.x = narrow;
      if (!is_view(node) || !node.arguments[0].is_value(wide)) continue;
      node.arguments[0] = Argument::of(narrow);
      narrow_view(node);
    }
  }
  void narrow_view(const Node& view) {
    graph_.facts[static_cast<std::size_t>(view.outputs[0])].dtype = at::kBFloat16;
    for (const Node& node : graph_.nodes) {
      if (is_view(node) && node.arguments[0].is_value(view.outputs[0])) narrow_view(node);
    }
  }

  Node part_of(const std::vector<Node>& open, const std::vector<Value>& outputs, std::int64_t ns) {
    std::set<Value> inside;
    std::vector<Value> inputs;
    for (const Node& node : open) {
      for (const Value value : Graph::reads(node)) {
        if (inside.insert(value).second) inputs.push_back(value);
      }
      inside.insert(node.outputs.begin(), node.outputs.end());
    }
    auto part = std::make_shared<Part>();
    for (const Value value : inputs) part->inputs.push_back(seen(value).look);
    part->ns = ns;
    part->text = text_of_part(open, inputs, part->inputs, outputs, &part->constants);
    part->otherwise = std::make_unique<const Program>(alone(open, inputs, outputs));
    Node node;
    node.kind = Node::Kind::kOwn;
    node.own_step = make_part_step;
    node.own_name = "part for Inductor";
    for (const Value value : inputs) node.arguments.push_back(Argument::of(value));
    node.outputs = outputs;
    node.part = part;
    found_.parts.push_back(std::move(part));
    return node;
  }

  /// The nodes as a graph of their own, in the best steps of ours.
  [[nodiscard]] Graph alone(const std::vector<Node>& open, const std::vector<Value>& inputs, const std::vector<Value>& outputs) const {
    Graph graph;
    std::map<Value, Value> numbers;
    const auto number = [&](Value value) {
      const auto [at, added] = numbers.emplace(value, kNone);
      if (added) at->second = graph.add_value(graph_.facts[static_cast<std::size_t>(value)]);
      return at->second;
    };
    for (const Value value : inputs) graph.inputs.push_back(number(value));
    for (const Node& given : open) {
      Node node = given;
      for (Argument& argument : node.arguments) renumber(&argument, number);
      for (Value& value : node.outputs) value = number(value);
      graph.nodes.push_back(std::move(node));
    }
    for (const Value value : outputs) graph.outputs.push_back(Argument::of(number(value)));
    Fused fused;
    optimize_between_parts(&graph, false, &fused);
    return graph;
  }

  template <typename Number>
  static void renumber(Argument* argument, const Number& number) {
    if (argument->kind == Argument::Kind::kValue && argument->value != kNone) argument->value = number(argument->value);
    for (Argument& element : argument->list) renumber(&element, number);
  }

  Graph& graph_;
  const bool bf16_;
  const bool all_;
  std::vector<Seen> seen_;
  std::vector<std::int64_t> node_ns_;
  std::vector<int> uses_;
  std::vector<Node> nodes_;  ///< what becomes of those of the graph
  std::vector<Node> open_;
  std::set<Value> made_;  ///< by open nodes
  std::int64_t time_ns_ = 0;
  std::vector<std::pair<Value, Value>> narrowed_;
  Parts found_;
};

}  // namespace

Parts find_parts(Graph* graph, bool bf16, const Values& inputs, bool all) { return PartFinder(graph, bf16, inputs, all).run(); }

}  // namespace ipexrun::preload::graph
