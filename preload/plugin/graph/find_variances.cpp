// Variances, standard deviations and instance norms, for which torch has kernels that are slow (variance_step.h).
#include "preload/plugin/graph/match.h"
#include "preload/plugin/graph/passes.h"
#include "preload/plugin/graph/variance_step.h"

namespace ipexrun::preload::graph {
namespace {

void make_own(Node* node, std::unique_ptr<Step> (*step)(const Node&), const char* name, std::int64_t index) {
  node->kind = Node::Kind::kOwn;  // the operator stays: its step takes what ours does not
  node->own_step = step;
  node->own_name = name;
  node->index = index;
}

bool read_at(const Match& match, Value value) { return !match.readers(value).empty() || match.is_result(value); }

}  // namespace

void find_variances(Graph* graph, Fused* fused) {
  const Match match(*graph);
  for (Node& node : graph->nodes) {
    const bool root = node.is("std", "correction");
    if (root || node.is("var", "correction")) {
      const auto dims = ints_of(node.arguments[1]);
      if (!dims || dims->empty() || node.arguments[2].kind != Argument::Kind::kConstant ||
          node.arguments[3].kind != Argument::Kind::kConstant || match.facts(node.outputs[0]).dtype != at::kFloat) {
        continue;
      }
      make_own(&node, make_variance_step, root ? "std" : "var", root ? 1 : 0);
      ++fused->variances;
    } else if (node.is("_native_batch_norm_legit", "no_stats") && node.outputs.size() == 3 && !read_at(match, node.outputs[1]) &&
               !read_at(match, node.outputs[2]) && match.facts(node.outputs[0]).dtype == at::kFloat) {
      make_own(&node, make_instance_norm_step, "instance norm", 0);
      ++fused->variances;
    }
  }
}

}  // namespace ipexrun::preload::graph
