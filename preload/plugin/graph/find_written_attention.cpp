// Attention that a program writes out: softmax(Q K^T * scale + mask) V as two products of batches of matrices with element-wise operators
// between them, which torch.matmul and einsum come down to. It becomes the operator that find_attention() takes, whose kernel makes no
// matrix of scores; the copies that only made batches of Q, K and V go with the products.
//
// Numbers that are multiplied into scores are the scale, until something is added; what is added, or filled in where a mask says so, is
// added to one mask. A number that is filled in has to be so low that what a score was does not matter beside it. Where it does (all of a
// row is hidden, or a score is no number), the step writes the call out, by the masks in the program's order.
#include <algorithm>
#include <initializer_list>
#include <numeric>
#include <string>
#include <utility>

#include "preload/plugin/graph/match.h"
#include "preload/plugin/graph/passes.h"

namespace ipexrun::preload::graph {
namespace {

constexpr double kAsGoodAsMinusInfinity = -1e9;  ///< beside it scores up to 32 vanish in float32

bool is_any(const Node* node, std::initializer_list<std::pair<const char*, const char*>> names) {
  if (node == nullptr) return false;
  for (const auto& [name, overload] : names) {
    if (node->is(name, overload)) return true;
  }
  return false;
}

bool same(const Argument& a, const Argument& b) {
  if (value_of(a) != kNone) return value_of(a) == value_of(b);
  const auto number = number_of(a);
  return number && number == number_of(b);
}

/// The sizes that a view is made with, one an argument.
const std::vector<Argument>* sizes_of_view(const Node* node) {
  return is_any(node, {{"view", ""}, {"_unsafe_view", ""}}) && node->arguments[1].kind == Argument::Kind::kList ? &node->arguments[1].list
                                                                                                                : nullptr;
}

/// A mask under way: added to the scores.
struct Mask {
  Value value = kNone;  ///< added as it is, or
  Value where = kNone;  ///< bool: `fill` is added where it says so
  double fill = 0;
  bool inverted = false;   ///< added where it says not
  std::int64_t times = 0;  ///< not 0: [1, windows, ..] of five dimensions, and the scores have the windows of so many images
};

struct Found {
  Value q = kNone, k = kNone, v = kNone;  ///< [BH, rows, depth], K as [BH, depth, keys]
  double scale = 1;
  std::vector<Mask> masks;
  std::vector<std::int64_t> scores;  ///< sizes as the softmax has them: [BH, rows, keys] or [batch, heads, rows, keys]
  Value result = kNone;              ///< of the second product, [BH, rows, depth]
};

class WrittenAttentionFinder {
 public:
  WrittenAttentionFinder(Graph* graph, Fused* fused) : graph_(*graph), fused_(*fused), match_(*graph), known_(graph->facts.size()) {}

  void run() {
    const auto op = c10::Dispatcher::singleton().findSchema({"aten::_scaled_dot_product_flash_attention_for_cpu", ""});
    if (!op) return;
    op_ = op;
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      Found found;
      if (graph_.nodes[i].is("bmm", "") && find(graph_.nodes[i], &found)) rewrite(i, found);
    }
    insert();
  }

 private:
  using Sizes = std::vector<std::int64_t>;
  [[nodiscard]] const Sizes& sizes(Value value) const { return match_.facts(value).sizes; }

  /// What views and copies of all elements in their order, read by nobody else, made `value` of: up to the first node that is none.
  [[nodiscard]] Value before_views(Value value) const {
    for (const Node* node = match_.maker(value); node != nullptr && match_.reader(value); node = match_.maker(value)) {
      const Value from = node->is("permute", "") ? before_permutes(value) : keeps_order(*node) ? value_of(node->arguments[0]) : kNone;
      if (from == kNone) break;
      value = from;
    }
    return value;
  }

  [[nodiscard]] bool keeps_order(const Node& node) const {
    if (is_any(&node, {{"view", ""},
                       {"_unsafe_view", ""},
                       {"unsqueeze", ""},
                       {"squeeze", "dim"},
                       {"squeeze", "dims"},
                       {"alias", ""},
                       {"clone", ""},
                       {"detach", ""}})) {
      return true;
    }
    const Value from = node.arguments.empty() ? kNone : value_of(node.arguments[0]);
    if (from == kNone) return false;
    if (node.is("expand", "")) return sizes(from) == sizes(node.outputs[0]);
    return node.is("_to_copy", "") && is_float(match_.facts(from).dtype) && is_float(match_.facts(node.outputs[0]).dtype);
  }

  /// The operand of a row of permutations that together move dimensions of one alone; kNone where they move others.
  [[nodiscard]] Value before_permutes(Value value) const {
    Sizes order(sizes(value).size());
    std::iota(order.begin(), order.end(), 0);
    for (const Node* node = match_.maker(value); node != nullptr && node->is("permute", "") && match_.reader(value);
         node = match_.maker(value)) {
      const auto one = ints_of(node->arguments[1]);
      const Value from = value_of(node->arguments[0]);
      if (!one || one->size() != order.size() || from == kNone) return kNone;
      for (std::int64_t& dim : order) {
        const std::int64_t of = (*one)[static_cast<std::size_t>(dim)];
        dim = of < 0 ? of + static_cast<std::int64_t>(order.size()) : of;
      }
      value = from;
      if (in_order(order, sizes(from))) return from;
    }
    return kNone;
  }

  static bool in_order(const Sizes& order, const Sizes& sizes) {
    std::int64_t last = -1;
    for (const std::int64_t dim : order) {
      if (sizes[static_cast<std::size_t>(dim)] == 1) continue;
      if (dim < last) return false;
      last = dim;
    }
    return true;
  }

  /// bmm(softmax(..bmm(q, k)..), v)
  bool find(const Node& product, Found* found) const {
    const Value weights = value_of(product.arguments[0]);
    const Node* softmax = match_.maker(before_views(weights));
    if (!match_.reader(weights) || softmax == nullptr || !softmax->is("_softmax", "")) return false;
    const auto dim = number_of(softmax->arguments[1]);
    const Value scores = value_of(softmax->arguments[0]);
    const Sizes& shape = sizes(scores);
    if (!dim || (shape.size() != 3 && shape.size() != 4) || (*dim != -1 && *dim != static_cast<double>(shape.size()) - 1)) return false;
    if (!match_.reader(softmax->outputs[0])) return false;
    const Sizes& batches = sizes(weights);
    if (batches.size() != 3 || !ends_alike(shape, batches)) return false;
    found->v = value_of(product.arguments[1]);
    found->result = product.outputs[0];
    found->scores = shape;
    return find_scores(scores, batches, found) && fit(*found);
  }

  /// The last two sizes are the same; dynamic ones are taken for equal, since all elements are there in their order and the first product
  /// says what a row is (checked at its end).
  static bool ends_alike(const Sizes& a, const Sizes& b) {
    return a.size() >= 2 && b.size() >= 2 && a[a.size() - 1] == b[b.size() - 1] && a[a.size() - 2] == b[b.size() - 2];
  }

  /// From the softmax's operand up to the first product.
  bool find_scores(Value value, const Sizes& batches, Found* found) const {
    double scale = 1;
    bool scaled = false;
    for (;;) {
      if (!match_.reader(value)) return false;
      value = before_views(value);
      const Node* node = match_.maker(value);
      if (node == nullptr || !match_.reader(value)) return false;
      if (node->is("bmm", "")) {
        if (sizes(value).size() != 3 || !ends_alike(sizes(value), batches) || sizes(value)[0] != batches[0]) return false;
        found->q = value_of(node->arguments[0]);
        found->k = value_of(node->arguments[1]);
        found->scale = scale;
        return true;
      }
      const double number = node->arguments.size() > 1 ? number_of(node->arguments[1]).value_or(0) : 0;  // 0 is none, as a scale
      const bool product = is_any(node, {{"mul", "Tensor"}, {"mul", "Scalar"}});
      if (number != 0 && (product || is_any(node, {{"div", "Tensor"}, {"div", "Scalar"}})) && value_of(node->arguments[0]) != kNone) {
        scale = product ? scale * number : scale / number;
        scaled = true;
        value = value_of(node->arguments[0]);
        continue;
      }
      Mask mask;
      const Value from = scaled ? kNone : masked(*node, found->scores, &mask);  // what was added before a product is scaled itself
      if (from == kNone || !match_.facts(from).tensor) return false;
      found->masks.push_back(mask);
      value = from;
    }
  }

  /// The scores under a mask, and the mask; kNone where it is none.
  Value masked(const Node& node, const Sizes& found_shape, Mask* mask) const {
    Value scores = kNone;
    if (node.is("add", "Tensor") && is_number(node.arguments[2], 1)) {
      for (const std::size_t side : {0, 1}) {
        const Value one = value_of(node.arguments[side]);
        const Value other = value_of(node.arguments[1 - side]);
        if (one == kNone || other == kNone || sizes(one) != sizes(node.outputs[0]) || !match_.reader(one)) continue;
        if (!match_.facts(other).tensor || !is_float(match_.facts(other).dtype)) continue;
        if (!leads_to_product(one)) continue;
        scores = one;
        mask->value = other;
        break;
      }
    } else if (node.is("masked_fill", "Scalar") || node.is("masked_fill", "Tensor") || node.is("where", "ScalarOther") ||
               node.is("where", "self")) {
      const bool where = node.is("where", "self") || node.is("where", "ScalarOther");
      std::size_t scores_at = where ? 1 : 0;
      std::optional<double> fill = filled(node.arguments[2]);
      if (!fill && node.is("where", "self")) {
        scores_at = 2;
        fill = filled(node.arguments[1]);
      }
      mask->where = value_of(node.arguments[where ? 0 : 1]);
      mask->inverted = where && scores_at == 1;
      scores = value_of(node.arguments[scores_at]);
      if (!fill || !(*fill <= kAsGoodAsMinusInfinity) || mask->where == kNone || match_.facts(mask->where).dtype != at::kBool) return kNone;
      mask->fill = *fill;
    }
    if (scores == kNone || sizes(scores) != sizes(node.outputs[0])) return kNone;
    const Sizes& shape = sizes(scores);
    const Sizes& of = sizes(mask->value != kNone ? mask->value : mask->where);
    if (shape == found_shape) return of.size() <= shape.size() ? scores : kNone;
    if (!of_windows(shape, found_shape) || of.size() != 5 || of[0] != 1) return kNone;
    mask->times = shape[0];
    return scores;
  }

  /// [images, windows, heads, rows, keys] of [images * windows, heads, rows, keys].
  static bool of_windows(const Sizes& five, const Sizes& four) {
    return five.size() == 5 && four.size() == 4 && five[0] > 0 && five[1] > 0 && five[0] * five[1] == four[0] &&
           std::equal(five.begin() + 2, five.end(), four.begin() + 1);
  }

  /// A number, also in a tensor of no dimensions that is made of one.
  [[nodiscard]] std::optional<double> filled(const Argument& argument) const {
    if (const auto number = number_of(argument)) return number;
    const Node* node = match_.maker(argument);
    while (is_any(node, {{"alias", ""}, {"lift_fresh_copy", ""}, {"_to_copy", ""}, {"expand", ""}}))
      node = match_.maker(node->arguments[0]);
    if (is_any(node, {{"full", ""}})) return number_of(node->arguments[1]);
    return is_any(node, {{"scalar_tensor", ""}}) ? number_of(node->arguments[0]) : std::nullopt;
  }

  /// Some steps on, element by element, there is a product of two batches.
  [[nodiscard]] bool leads_to_product(Value value) const {
    for (int steps = 0; steps < 12; ++steps) {
      value = before_views(value);
      const Node* node = match_.maker(value);
      if (node == nullptr) return false;
      if (node->is("bmm", "")) return true;
      if (!is_any(node, {{"mul", "Tensor"},
                         {"mul", "Scalar"},
                         {"div", "Tensor"},
                         {"div", "Scalar"},
                         {"add", "Tensor"},
                         {"masked_fill", "Scalar"},
                         {"masked_fill", "Tensor"},
                         {"where", "self"},
                         {"where", "ScalarOther"}})) {
        return false;
      }
      const bool where = is_any(node, {{"where", "self"}, {"where", "ScalarOther"}});
      value = value_of(node->arguments[where ? 1 : 0]);
      if (value == kNone) return false;
    }
    return false;
  }

  [[nodiscard]] bool fit(const Found& found) const {
    if (found.scale == 0 || found.q == kNone || found.k == kNone || found.v == kNone) return false;
    const Facts& q = match_.facts(found.q);
    const Facts& k = match_.facts(found.k);
    const Facts& v = match_.facts(found.v);
    const Facts& result = match_.facts(found.result);
    if (!is_float(q.dtype) || k.dtype != q.dtype || v.dtype != q.dtype || result.dtype != q.dtype) return false;
    if (q.sizes.size() != 3 || k.sizes.size() != 3 || v.sizes.size() != 3) return false;
    return q.sizes[2] > 0 && q.sizes[2] == k.sizes[1] && v.sizes[2] == q.sizes[2] && q.sizes[0] == k.sizes[0] && q.sizes[0] == v.sizes[0];
  }

  // Rewriting.

  /// [batch, heads, rows, depth] as they lay before they became [batch * heads, rows, depth]; kNone where they did not.
  [[nodiscard]] Value apart(Value value) const {
    const std::vector<Argument>* to = sizes_of_view(match_.maker(value));
    if (to == nullptr || to->size() != 3) return kNone;
    Value from = value_of(match_.maker(value)->arguments[0]);
    const Node* node = match_.maker(from);
    if (node != nullptr && node->is("clone", "")) from = value_of(node->arguments[0]);
    node = match_.maker(from);
    if (node == nullptr || !node->is("expand", "") || node->arguments[1].kind != Argument::Kind::kList) return kNone;
    const std::vector<Argument>& wide = node->arguments[1].list;
    const Value source = value_of(node->arguments[0]);
    if (wide.size() != 4 || source == kNone || sizes(source) != sizes(from)) return kNone;
    return same(wide[2], (*to)[1]) && same(wide[3], (*to)[2]) ? source : kNone;
  }

  Value add(const char* name, const char* overload, std::vector<Argument> arguments, at::ScalarType dtype, Sizes sizes) {
    Node node;
    node.op = c10::Dispatcher::singleton().findSchemaOrThrow((std::string("aten::") + name).c_str(), overload);
    node.arguments = std::move(arguments);
    node.outputs = {new_value(dtype, std::move(sizes), false)};
    made_.push_back(std::move(node));
    return made_.back().outputs[0];
  }

  Value new_value(at::ScalarType dtype, Sizes sizes, bool contiguous) {
    Facts facts;
    facts.tensor = true;
    facts.dtype = dtype;
    facts.sizes = std::move(sizes);
    facts.contiguous = contiguous;
    return graph_.add_value(std::move(facts));
  }

  static Argument number(std::int64_t number) { return Argument::of(c10::IValue(number)); }

  /// In four dimensions, the first of which are those of the scores: as it lay, or a view of it; kNone where its sizes are not known.
  Value in_four(Value value, const Sizes& scores) {
    const at::ScalarType dtype = match_.facts(value).dtype;
    const Sizes three = sizes(value);
    if (scores.size() == 3) return add("unsqueeze", "", {Argument::of(value), number(0)}, dtype, {1, three[0], three[1], three[2]});
    if (const Value source = apart(value); source != kNone) {
      if (sizes(source)[0] == scores[0] && sizes(source)[1] == scores[1]) return source;
    }
    const Sizes four = {scores[0], scores[1], three[1], three[2]};
    std::vector<Argument> to;
    int unknown = 0;
    for (const std::int64_t size : four) {
      unknown += size < 0 ? 1 : 0;
      to.push_back(number(size));  // -1: what is left
    }
    return unknown > 1 ? kNone : add("view", "", {Argument::of(value), Argument::of(std::move(to))}, dtype, four);
  }

  /// K as Q lies, from [batch, heads, depth, keys].
  Value keys_first(Value value) {
    if (const Node* node = static_cast<std::size_t>(value) < known_ ? match_.maker(value) : nullptr;
        node != nullptr && node->is("transpose", "int")) {
      const auto a = number_of(node->arguments[1]);
      const auto b = number_of(node->arguments[2]);
      const auto last_two = [](double dim) { return dim == -1 || dim == -2 || dim == 2 || dim == 3; };
      if (a && b && last_two(*a) && last_two(*b) && sizes(value_of(node->arguments[0])).size() == 4) return value_of(node->arguments[0]);
    }
    const Facts facts = match_.facts(value);
    return add("transpose", "int", {Argument::of(value), number(2), number(3)}, facts.dtype,
               {facts.sizes[0], facts.sizes[1], facts.sizes[3], facts.sizes[2]});
  }

  /// One that is added.
  Value added(const Mask& mask, Value value) {
    if (mask.value != kNone) return value;
    Argument chosen = Argument::of(c10::IValue(mask.fill));
    Argument other = Argument::of(c10::IValue(0.0));
    if (mask.inverted) std::swap(chosen, other);
    return add("where", "Scalar", {Argument::of(value), chosen, other}, at::kFloat, sizes(value));
  }

  /// What is added, or says where, in two or four dimensions.
  Value laid_out(const Mask& mask) {
    Value value = mask.value == kNone ? mask.where : mask.value;
    if (mask.times > 0) {
      Sizes windows(sizes(value).begin() + 1, sizes(value).end());
      value = add("select", "int", {Argument::of(value), number(0), number(0)}, match_.facts(value).dtype, windows);
      if (mask.times > 1 && windows[0] > 1) {
        windows[0] *= mask.times;
        value = add("repeat", "", {Argument::of(value), Argument::of({number(mask.times), number(1), number(1), number(1)})},
                    match_.facts(value).dtype, windows);
      }
    }
    while (sizes(value).size() != 2 && sizes(value).size() != 4) {
      Sizes more = sizes(value);
      more.insert(more.begin(), 1);
      value = add("unsqueeze", "", {Argument::of(value), number(0)}, match_.facts(value).dtype, more);
    }
    return value;
  }

  Value sum(Value a, Value b) {
    Sizes all(4, 1);
    for (const Value value : {a, b}) {
      const Sizes& one = sizes(value);
      for (std::size_t i = 0; i < one.size(); ++i) {
        std::int64_t& size = all[4 - one.size() + i];
        if (size == 1) size = one[i];
      }
    }
    return add("add", "Tensor", {Argument::of(a), Argument::of(b), number(1)}, match_.facts(a).dtype, all);
  }

  void rewrite(std::size_t place, const Found& found) {
    const std::size_t before = made_.size();
    const Value q = in_four(found.q, found.scores);
    const Value turned = in_four(found.k, found.scores);
    const Value v = in_four(found.v, found.scores);
    if (q == kNone || turned == kNone || v == kNone) {
      made_.resize(before);
      return;
    }
    const Value k = keys_first(turned);
    Value mask = kNone;
    std::vector<Argument> written;
    for (const Mask& one : found.masks) {
      const Value laid = laid_out(one);
      const Value more = added(one, laid);
      mask = mask == kNone ? more : sum(mask, more);
      const bool fills = one.value == kNone;
      const std::initializer_list<Argument> as_written = {Argument::of(laid), Argument::of(fills ? c10::IValue(one.fill) : c10::IValue()),
                                                          Argument::of(c10::IValue(one.inverted))};
      written.insert(written.begin(), as_written);  // found from the last one on
    }
    Node attention;
    attention.op = op_;
    attention.kind = Node::Kind::kAttention;
    attention.index = kAttentionWritten;
    attention.arguments = {Argument::of(q),
                           Argument::of(k),
                           Argument::of(v),
                           Argument::of(c10::IValue(0.0)),
                           Argument::of(c10::IValue(false)),
                           mask == kNone ? Argument::of(c10::IValue()) : Argument::of(mask),
                           Argument::of(c10::IValue(found.scale))};
    attention.arguments.insert(attention.arguments.end(), written.begin(), written.end());
    Node& product = graph_.nodes[place];
    const at::ScalarType dtype = match_.facts(found.result).dtype;
    if (const auto copied = tokens_first(found)) {
      attention.index |= kAttentionTokensFirst;
      Node& apart = graph_.nodes[copied->first];
      attention.outputs = {apart.outputs[0]};
      graph_.facts[static_cast<std::size_t>(apart.outputs[0])].contiguous = false;
      apart.outputs[0] = new_value(dtype, sizes(apart.outputs[0]), true);  // nobody reads it
      Node& copy = graph_.nodes[copied->second];
      graph_.facts[static_cast<std::size_t>(value_of(copy.arguments[0]))].contiguous = true;
      copy.op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::alias", "");
      copy.arguments.resize(1);
      attention.outputs.push_back(new_value(at::kFloat, {}, false));
      made_.push_back(std::move(attention));
    } else {
      attention.outputs = {new_value(dtype, sizes(q), true), new_value(at::kFloat, {}, false)};
      made_.push_back(std::move(attention));
      Node back;
      const Value result = made_.back().outputs[0];
      if (found.scores.size() == 3) {
        back.op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::select", "int");
        back.arguments = {Argument::of(result), number(0), number(0)};
      } else {
        back.op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::flatten", "using_ints");
        back.arguments = {Argument::of(result), number(0), number(1)};
      }
      back.outputs = product.outputs;
      product = std::move(back);
    }
    insertions_.emplace_back(place, made_.size());
    ++fused_.written_attentions;
  }

  /// Where the result is apart again as [batch, heads, rows, depth], transposed and copied, by nobody else read: the places of the view
  /// and of the copy.
  [[nodiscard]] std::optional<std::pair<std::size_t, std::size_t>> tokens_first(const Found& found) const {
    if (found.scores.size() != 4) return std::nullopt;
    const auto view = match_.reader(found.result);
    if (!view || sizes_of_view(&graph_.nodes[*view]) == nullptr) return std::nullopt;
    const Value four = graph_.nodes[*view].outputs[0];
    const Sizes& of = sizes(four);
    if (of.size() != 4 || of[0] != found.scores[0] || of[1] != found.scores[1] || of[2] != found.scores[2]) return std::nullopt;
    const auto turn = match_.reader(four);
    if (!turn) return std::nullopt;
    const Node& turned = graph_.nodes[*turn];
    const bool transposed = turned.is("transpose", "int") && is_number(turned.arguments[1], 1) && is_number(turned.arguments[2], 2);
    const bool permuted = turned.is("permute", "") && ints_of(turned.arguments[1]) == Sizes{0, 2, 1, 3};
    const auto copy = transposed || permuted ? match_.reader(turned.outputs[0]) : std::nullopt;
    if (!copy || !graph_.nodes[*copy].is("clone", "") || !match_.facts(graph_.nodes[*copy].outputs[0]).contiguous) return std::nullopt;
    return std::pair(*view, *copy);
  }

  /// What was made goes where it is first read.
  void insert() {
    if (insertions_.empty()) return;
    std::vector<Node> all;
    all.reserve(graph_.nodes.size() + made_.size());
    std::size_t made = 0;
    auto next = insertions_.begin();
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (next != insertions_.end() && next->first == i) {
        for (; made < next->second; ++made) all.push_back(std::move(made_[made]));
        ++next;
      }
      all.push_back(std::move(graph_.nodes[i]));
    }
    graph_.nodes = std::move(all);
  }

  Graph& graph_;
  Fused& fused_;
  Match match_;
  std::size_t known_;  ///< values that the graph had at first
  std::optional<c10::OperatorHandle> op_;
  std::vector<Node> made_;
  std::vector<std::pair<std::size_t, std::size_t>> insertions_;  ///< place, end of what stands before it among the made ones
};

}  // namespace

void find_written_attention(Graph* graph, Fused* fused) { WrittenAttentionFinder(graph, fused).run(); }

}  // namespace ipexrun::preload::graph
