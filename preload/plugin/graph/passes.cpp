#include "preload/plugin/graph/passes.h"

#include <utility>
#include <vector>

namespace ipexrun::preload::graph {

void optimize_around_parts(Graph* graph, bool bf16, Fused* fused) {
  share_equal(graph);
  drop_dead(graph);
  find_gelu(graph, fused);
  find_written_attention(graph, fused);
  find_attention(graph, bf16, fused);
  drop_dead(graph);
  fold_constants(graph, fused);
  fold_weights(graph, fused);
  drop_dead(graph);
  find_linears(graph, bf16, fused);
  find_convolutions(graph, bf16, fused);
  fold_norms(graph, fused);
  fold_pads(graph, fused);
  drop_dead(graph);
  fuse_epilogues(graph, fused);
  fuse_after_convolutions(graph, fused);
  drop_dead(graph);
  keep_channels_last(graph, bf16, fused);
  find_pools(graph, fused);
  drop_dead(graph);
}

void optimize_between_parts(Graph* graph, bool bf16, Fused* fused) {
  find_norms(graph, fused);
  find_variances(graph, fused);
  find_rotary(graph, fused);
  drop_dead(graph);
  add_to_norms(graph, fused);
  drop_dead(graph);
  if (bf16) keep_bf16(graph, fused);
  drop_dead(graph);
  find_pointwise(graph, bf16, fused);
  join_linears(graph, fused);
  drop_dead(graph);
  space_rows(graph);
}

Fused optimize(Graph* graph, bool bf16) {
  Fused fused;
  share_equal(graph);
  drop_dead(graph);
  find_gelu(graph, &fused);
  find_norms(graph, &fused);
  find_variances(graph, &fused);
  find_rotary(graph, &fused);
  find_written_attention(graph, &fused);
  find_attention(graph, bf16, &fused);
  drop_dead(graph);
  fold_constants(graph, &fused);  // after those that look at how a table or a mask was made
  fold_weights(graph, &fused);
  drop_dead(graph);
  find_linears(graph, bf16, &fused);
  find_convolutions(graph, bf16, &fused);
  fold_norms(graph, &fused);
  fold_pads(graph, &fused);
  drop_dead(graph);
  fuse_epilogues(graph, &fused);
  fuse_after_convolutions(graph, &fused);
  drop_dead(graph);
  add_to_norms(graph, &fused);
  drop_dead(graph);
  keep_channels_last(graph, bf16, &fused);
  find_pools(graph, &fused);
  if (bf16) keep_bf16(graph, &fused);
  drop_dead(graph);
  find_pointwise(graph, bf16, &fused);
  join_linears(graph, &fused);
  drop_dead(graph);
  space_rows(graph);
  return fused;
}

std::string words(const Fused& fused) {
  const std::vector<std::pair<int, const char*>> counts = {
      {fused.linears, "linear layers"},
      {fused.convolutions, "convolutions"},
      {fused.folded_norms, "batch norms in them"},
      {fused.pads, "paddings in them"},
      {fused.activations, "activations in them"},
      {fused.sums, "sums in them"},
      {fused.held, "images held channels last"},
      {fused.reorders, "reorders"},
      {fused.pools, "pools"},
      {fused.kept_bf16, "results kept in bf16"},
      {fused.attentions, "attentions"},
      {fused.written_attentions, "of them written out"},
      {fused.gelus, "gelus written out"},
      {fused.constants, "constants"},
      {fused.of_weights, "results of weights alone"},
      {fused.norms, "norms"},
      {fused.sums_in_norms, "sums in norms"},
      {fused.rotaries, "rotary embeddings"},
      {fused.variances, "variances"},
      {fused.pointwise, "element-wise operators"},
      {fused.rows, "passes for them"},
      {fused.joined, "linear layers joined"},
  };
  std::string text;
  for (const auto& [count, what] : counts) {
    if (count > 0) text += (text.empty() ? "" : ", ") + std::to_string(count) + ' ' + what;
  }
  return text.empty() ? "nothing fused" : text;
}

}  // namespace ipexrun::preload::graph
