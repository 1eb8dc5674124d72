// Parts of a graph that Inductor may compile (docs/decisions/0035-inductor.md): what lies between products, convolutions, attention and
// pools, which keep steps of ours.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "preload/plugin/graph/executor.h"
#include "preload/plugin/graph/ir.h"
#include "preload/plugin/graph/part_step.h"

namespace ipexrun::preload::graph {

struct Parts {
  std::vector<std::shared_ptr<const Part>> parts;
  std::int64_t whole_ns = 0;  ///< of the call in which they were found
};

/// Runs the graph twice with these inputs to see sizes, strides and times; then each part that is worth it becomes a step (part_step.h),
/// compiled for exactly what was seen. After optimize_around_parts(); what is left goes through optimize_between_parts(). Throws what torch
/// throws. `bf16`: what only products read is written as bf16. `all`: a part is worth it however short it is.
Parts find_parts(Graph* graph, bool bf16, const Values& inputs, bool all = false);

}  // namespace ipexrun::preload::graph
