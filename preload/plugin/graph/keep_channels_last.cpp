// Between convolutions values are held channels last, and in bf16 where the convolutions compute in it: they read and write nothing else,
// and what lies between them (sums, activations, pools, norms) does not care how the elements lie. Whoever else reads such a value gets
// it in the dtype and order that it had when it was captured.
//
// A value is held when a convolution gives it, or an operator that carries images (below) all of whose images are held.
#include <algorithm>
#include <array>
#include <string>

#include "preload/plugin/graph/passes.h"

namespace ipexrun::preload::graph {
namespace {

/// An operator that does the same to images in any order and floating dtype.
struct Carrier {
  const char* name;
  const char* overload;
  std::size_t images;  ///< the first so many arguments; 0: the first is a list of them
};

constexpr Carrier kCarriers[] = {
    {"relu", "", 1},
    {"clone", "", 1},
    {"hardtanh", "", 1},
    {"silu", "", 1},
    {"gelu", "", 1},
    {"hardswish", "", 1},
    {"hardsigmoid", "", 1},
    {"sigmoid", "", 1},
    {"tanh", "", 1},
    {"leaky_relu", "", 1},
    {"elu", "", 1},
    {"add", "Tensor", 2},
    {"mul", "Tensor", 2},
    {"cat", "", 0},
    {"constant_pad_nd", "", 1},
    {"max_pool2d_with_indices", "", 1},
    {"avg_pool2d", "", 1},
    {"_adaptive_avg_pool2d", "", 1},
    {"mean", "dim", 1},
    {"upsample_nearest2d", "vec", 1},
    {"upsample_bilinear2d", "vec", 1},
    {"_native_batch_norm_legit_no_training", "", 1},
};

const Carrier* carrier_of(const Node& node) {
  const auto* found = std::find_if(std::begin(kCarriers), std::end(kCarriers),
                                   [&](const Carrier& carrier) { return node.is(carrier.name, carrier.overload); });
  return found == std::end(kCarriers) ? nullptr : found;
}

class Holder {
 public:
  Holder(Graph* graph, bool bf16, Fused* fused)
      : graph_(*graph),
        bf16_(bf16),
        fused_(*fused),
        uses_(graph->uses()),
        held_(graph->facts.size(), false),
        inside_(graph->nodes.size(), false) {}

  void run() {
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) enter(i);
    leave_alone_what_only_others_read();
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (inside_[i]) hold(&graph_.nodes[i]);
    }
    share_entries();
    make_exits();
  }

 private:
  [[nodiscard]] const Facts& facts(Value value) const { return graph_.facts[static_cast<std::size_t>(value)]; }
  [[nodiscard]] bool held(Value value) const { return value != kNone && held_[static_cast<std::size_t>(value)]; }
  [[nodiscard]] static bool is_mean(const Node& node) { return node.is("mean", "dim"); }

  /// Can be given back to others as it was.
  [[nodiscard]] bool is_image(Value value) const {
    const Facts& about = facts(value);
    return about.tensor && about.sizes.size() >= 4 && about.layout != Layout::kUnknown &&
           (about.dtype == at::kFloat || about.dtype == at::kBFloat16);
  }

  [[nodiscard]] bool is_held_image(const Argument& argument) const {
    return argument.kind == Argument::Kind::kValue && held(argument.value);
  }

  [[nodiscard]] bool carries(const Node& node) const {
    const Carrier* carrier = carrier_of(node);
    if (carrier == nullptr || (!is_image(node.outputs[0]) && !is_mean(node))) return false;
    for (std::size_t i = 1; i < node.outputs.size(); ++i) {
      if (uses_[static_cast<std::size_t>(node.outputs[i])] > 0) return false;
    }
    if (carrier->images == 0) {
      const std::vector<Argument>& list = node.arguments[0].list;
      return !list.empty() && std::all_of(list.begin(), list.end(), [this](const Argument& each) { return is_held_image(each); });
    }
    for (std::size_t i = 0; i < carrier->images; ++i) {
      if (!is_held_image(node.arguments[i]) || facts(node.arguments[i].value).dtype != facts(node.outputs[0]).dtype) return false;
    }
    return true;
  }

  void enter(std::size_t i) {
    const Node& node = graph_.nodes[i];
    inside_[i] = node.kind == Node::Kind::kConvolution ? is_image(node.outputs[0]) : carries(node);
    if (inside_[i] && is_image(node.outputs[0])) held_[static_cast<std::size_t>(node.outputs[0])] = true;
  }

  /// Whether the node takes the value as it is held.
  [[nodiscard]] bool reads_held(std::size_t i, Value value) const {
    const std::vector<Value> reads = Graph::reads(graph_.nodes[i]);
    return inside_[i] && std::find(reads.begin(), reads.end(), value) != reads.end();
  }
  [[nodiscard]] bool read_inside(Value value) const {
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (reads_held(i, value)) return true;
    }
    return false;
  }

  /// The last convolutions write what others want themselves, and a mean over pixels is no image any more: float32 as it was.
  void leave_alone_what_only_others_read() {
    for (std::size_t i = graph_.nodes.size(); i-- > 0;) {
      const Node& node = graph_.nodes[i];
      if (!inside_[i] || read_inside(node.outputs[0])) continue;
      if (node.kind == Node::Kind::kConvolution || is_mean(node)) held_[static_cast<std::size_t>(node.outputs[0])] = false;
    }
  }

  [[nodiscard]] at::ScalarType dtype_inside(at::ScalarType captured) const { return bf16_ ? at::kBFloat16 : captured; }

  void hold(Node* node) {
    const Value value = node->outputs[0];
    Facts& about = graph_.facts[static_cast<std::size_t>(value)];
    const at::ScalarType captured = about.dtype;
    if (!held(value)) {
      // A mean of bf16 that others read is made in float32.
      if (is_mean(*node) && node->arguments[3].constant.isNone()) {
        node->arguments[3] = Argument::of(c10::IValue(static_cast<std::int64_t>(captured)));
      }
      return;
    }
    before_.emplace_back(value, about);
    about.dtype = dtype_inside(captured);
    about.layout = Layout::kChannelsLast;
    about.contiguous = false;
    ++fused_.held;
    if (node->kind != Node::Kind::kConvolution) return;
    node->convolution.layout = Layout::kChannelsLast;
    node->convolution.bf16_out = about.dtype == at::kBFloat16;
  }

  static Node reorder(Value from, Value to, Layout layout, at::ScalarType dtype) {
    Node node;
    node.kind = Node::Kind::kReorder;
    node.arguments = {Argument::of(from), Argument::of(c10::IValue(static_cast<std::int64_t>(dtype)))};
    node.index = static_cast<std::int64_t>(layout);
    node.outputs = {to};
    return node;
  }

  void insert(std::size_t at, Node node) {
    graph_.nodes.insert(graph_.nodes.begin() + static_cast<std::ptrdiff_t>(at), std::move(node));
    inside_.insert(inside_.begin() + static_cast<std::ptrdiff_t>(at), false);
    ++fused_.reorders;
  }

  /// An image from outside that several convolutions read is reordered once.
  void share_entries() {
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Value x = graph_.nodes[i].convolution.x;
      if (!inside_[i] || x == kNone || held(x) || !is_image(x)) continue;
      const auto reads_x = [&](const Node& node) { return node.kind == Node::Kind::kConvolution && node.convolution.x == x; };
      std::vector<std::size_t> readers;
      for (std::size_t j = i; j < graph_.nodes.size(); ++j) {
        if (inside_[j] && reads_x(graph_.nodes[j])) readers.push_back(j);
      }
      if (readers.size() < 2) continue;
      Facts about = facts(x);
      about.dtype = dtype_inside(about.dtype);
      about.layout = Layout::kChannelsLast;
      about.contiguous = about.weight = false;
      const Value entered = graph_.add_value(about);
      held_.push_back(true);
      for (const std::size_t reader : readers) graph_.nodes[reader].convolution.x = entered;
      insert(i, reorder(x, entered, Layout::kChannelsLast, about.dtype));
      ++i;
    }
  }

  void make_exits() {
    for (const auto& [value, about] : before_) {
      const auto maker =
          static_cast<std::size_t>(std::find_if(graph_.nodes.begin(), graph_.nodes.end(),
                                                [v = value](const Node& node) {
                                                  return std::find(node.outputs.begin(), node.outputs.end(), v) != node.outputs.end();
                                                }) -
                                   graph_.nodes.begin());
      Value outside = kNone;
      const auto exit = [&] {
        if (outside != kNone) return outside;
        outside = graph_.add_value(about);
        held_.push_back(false);
        return outside;
      };
      Graph part;  // so that replace() rewrites one reader
      for (std::size_t i = maker + 1; i < graph_.nodes.size(); ++i) {
        const std::vector<Value> reads = Graph::reads(graph_.nodes[i]);
        if (inside_[i] || std::find(reads.begin(), reads.end(), value) == reads.end()) continue;
        part.nodes = {std::move(graph_.nodes[i])};
        part.replace(value, exit(), 0);
        graph_.nodes[i] = std::move(part.nodes[0]);
      }
      part.nodes.clear();
      part.outputs = std::move(graph_.outputs);
      const bool is_result =
          std::any_of(part.outputs.begin(), part.outputs.end(), [v = value](const Argument& each) { return each.is_value(v); });
      if (is_result) part.replace(value, exit(), 0);
      graph_.outputs = std::move(part.outputs);
      if (outside != kNone) insert(maker + 1, reorder(value, outside, about.layout, about.dtype));
    }
  }

  Graph& graph_;
  bool bf16_;
  Fused& fused_;
  std::vector<int> uses_;
  std::vector<bool> held_;                       ///< by value
  std::vector<bool> inside_;                     ///< by node: it reads and gives images as they are held
  std::vector<std::pair<Value, Facts>> before_;  ///< of what is held
};

}  // namespace

void keep_channels_last(Graph* graph, bool bf16, Fused* fused) { Holder(graph, bf16, fused).run(); }

}  // namespace ipexrun::preload::graph
