// Attention by our own kernel, which reads one head of k and v for several of q: copies that only repeat heads go.
#include "preload/plugin/graph/match.h"
#include "preload/plugin/graph/passes.h"

namespace ipexrun::preload::graph {
namespace {

/// [batch, heads, keys, depth] of which `value` is copies: each head several times, one after the other. kNone where it is not.
Value repeated(const Match& match, Value value) {
  const Node* flat = match.maker(value);
  if (flat == nullptr || !(flat->is("_unsafe_view", "") || flat->is("view", ""))) return kNone;
  const Node* copy = match.maker(flat->arguments[0]);
  if (copy == nullptr || !copy->is("clone", "")) return kNone;
  const Node* expand = match.maker(copy->arguments[0]);
  if (expand == nullptr || !expand->is("expand", "")) return kNone;
  const Node* apart = match.maker(expand->arguments[0]);
  if (apart == nullptr || !apart->is("unsqueeze", "") || !is_number(apart->arguments[1], 2)) return kNone;
  const Value from = value_of(apart->arguments[0]);
  if (from == kNone) return kNone;
  const std::vector<std::int64_t>& one = match.facts(from).sizes;
  const std::vector<std::int64_t>& many = match.facts(expand->outputs[0]).sizes;
  const std::vector<std::int64_t>& all = match.facts(value).sizes;
  if (one.size() != 4 || many.size() != 5 || all.size() != 4 || one[1] <= 0 || one[3] <= 0 || many[2] <= 0) return kNone;
  return many[1] == one[1] && many[0] == one[0] && many[3] == one[2] && many[4] == one[3] && all[0] == one[0] &&
                 all[1] == one[1] * many[2] && all[2] == one[2] && all[3] == one[3]
             ? from
             : kNone;
}

}  // namespace

void find_attention(Graph* graph, bool bf16, Fused* fused) {
  const Match match(*graph);
  for (Node& node : graph->nodes) {
    if (node.kind != Node::Kind::kAttention) {  // else found already
      if (!node.is("_scaled_dot_product_flash_attention_for_cpu", "") || !match.readers(node.outputs[1]).empty() ||
          match.is_result(node.outputs[1])) {
        continue;
      }
      node.kind = Node::Kind::kAttention;
    }
    if (bf16) node.index |= kAttentionBf16;
    ++fused->attentions;
    const Value k = repeated(match, value_of(node.arguments[1]));
    const Value v = repeated(match, value_of(node.arguments[2]));
    if (k == kNone || v == kNone || match.facts(k).sizes != match.facts(v).sizes) continue;
    node.arguments[1] = Argument::of(k);  // stock's operator takes them, too
    node.arguments[2] = Argument::of(v);
  }
}

}  // namespace ipexrun::preload::graph
