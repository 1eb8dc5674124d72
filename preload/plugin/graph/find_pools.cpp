// Pools of images that lie channels last, and their mean over height and width.
#include <algorithm>

#include "preload/plugin/graph/passes.h"
#include "preload/plugin/graph/pool_step.h"

namespace ipexrun::preload::graph {
namespace {

bool is_constant(const Argument& argument) {
  return argument.kind == Argument::Kind::kConstant ||
         (argument.kind == Argument::Kind::kList && std::all_of(argument.list.begin(), argument.list.end(), is_constant));
}

bool is_height_and_width(const Argument& argument) {
  std::vector<std::int64_t> dims;
  if (argument.kind == Argument::Kind::kConstant && argument.constant.isIntList()) dims = argument.constant.toIntVector();
  for (const Argument& element : argument.list) {
    if (!element.constant.isInt()) return false;
    dims.push_back(element.constant.toInt());
  }
  for (std::int64_t& dim : dims) dim = dim < 0 ? dim + 4 : dim;
  std::sort(dims.begin(), dims.end());
  return dims == std::vector<std::int64_t>{2, 3};
}

}  // namespace

void find_pools(Graph* graph, Fused* fused) {
  const std::vector<int> uses = graph->uses();
  for (Node& node : graph->nodes) {
    const bool largest = node.is("max_pool2d_with_indices", "");
    const bool mean = node.is("mean", "dim");
    if (!largest && !mean && !node.is("avg_pool2d", "")) continue;
    if (node.arguments[0].kind != Argument::Kind::kValue || !std::all_of(node.arguments.begin() + 1, node.arguments.end(), is_constant)) {
      continue;
    }
    const Facts& x = graph->facts[static_cast<std::size_t>(node.arguments[0].value)];
    const Facts& result = graph->facts[static_cast<std::size_t>(node.outputs[0])];
    if (x.sizes.size() != 4 || x.layout != Layout::kChannelsLast) continue;
    if (largest && uses[static_cast<std::size_t>(node.outputs[1])] > 0) continue;
    // A mean is planar and channels last at once, and the strides that it is given are the planar ones.
    if (mean ? !is_height_and_width(node.arguments[1]) : result.layout != Layout::kChannelsLast) continue;
    node.index = static_cast<std::int64_t>(largest ? PoolOf::kMax : mean ? PoolOf::kMean : PoolOf::kAverage);
    node.kind = Node::Kind::kOwn;
    node.own_step = make_pool_step;
    node.own_name = "pool";
    node.op.reset();
    node.outputs.resize(1);
    ++fused->pools;
  }
}

}  // namespace ipexrun::preload::graph
