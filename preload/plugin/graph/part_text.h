// What a part of a graph computes, as text for the one who compiles it (python/ipexrun/graphs/inductor_child.py).
//
// JSON: {"inputs": [{"dtype": 6, "sizes": [..], "strides": [..]}, ..], "nodes": [{"op": "aten::mul", "overload": "Tensor", "arguments":
// [..], "values": [7]} or {"list": 3, "item": 0, "values": [8]}, ..], "values": [8]}. Values go by number, inputs first. An argument is
// {"value": 7},
// {"list": [..]}, {"number": 2}, {"bool": true}, {"text": ".."}, {"complex": [1, 0]}, {"device": "cpu"} or null. dtypes are torch's
// numbers.
#pragma once

#include <string>
#include <vector>

#include "preload/plugin/graph/ir.h"
#include "preload/plugin/graph/part_step.h"

namespace ipexrun::preload::graph {

/// Nodes are operators and items; their values are numbered so that the tensors among `inputs` come first, in order, and then those that
/// `constants` hold, which are found here among the arguments of the nodes. `numbers`: what the inputs that are no tensors are.
/// Throws std::invalid_argument for a constant that no text can hold.
std::string text_of_part(const std::vector<Node>& nodes, const std::vector<Value>& inputs, const std::vector<PartInput>& looks,
                         const std::vector<Value>& outputs, std::vector<at::Tensor>* constants);

}  // namespace ipexrun::preload::graph
