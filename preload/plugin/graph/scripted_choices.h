// Choices among values within a TorchScript graph: rounded values may choose otherwise, and what follows is then another computation.
// The same rule as preload/plugin/choices.h, which watches programs that no graph is known of, and python/ipexrun/graphs/choices.py.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

namespace ipexrun::preload::graph {

/// Products and convolutions: what passes make faster, and round.
bool is_product(const torch::jit::Node* node);

/// Whether positions that are found among values of floating point (topk, argmax, sort, ..) are used for more than the graph's results, or
/// rows are taken, or a branch, where a comparison of such values holds, or what moves by steps alone (signs, whole numbers as floats,
/// masks as numbers) goes into another product. Values of a dtype that nobody knows count as floating point.
bool chooses_by_values(const torch::jit::Graph& graph);

}  // namespace ipexrun::preload::graph
