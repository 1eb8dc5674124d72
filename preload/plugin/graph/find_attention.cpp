#include "preload/plugin/graph/passes.h"

namespace ipexrun::preload::graph {

void find_attention(Graph* graph, bool bf16, Fused* fused) {
  const std::vector<int> uses = graph->uses();
  for (Node& node : graph->nodes) {
    if (!node.is("_scaled_dot_product_flash_attention_for_cpu", "") || uses[static_cast<std::size_t>(node.outputs[1])] > 0) continue;
    node.kind = Node::Kind::kAttention;
    node.index = bf16 ? 1 : 0;
    ++fused->attentions;
  }
}

}  // namespace ipexrun::preload::graph
