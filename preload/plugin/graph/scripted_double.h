// A region in float64: what float32 results are held against where stock's own are no closer to the truth than ours are to them.
// The same for graphs of TorchDynamo: python/ipexrun/graphs/double.py.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/ir/ir.h>

#include <cstddef>
#include <cstdint>

namespace ipexrun::preload::graph {

/// Results of a copy of `body`, a straight line of operators, by torch's own kernels with float32 meaning float64 throughout: in `inputs`,
/// constants and dtypes. Empty where that cannot be: a dtype is computed, an operator knows no float64, or inputs and constants would take
/// more than `most_bytes`.
torch::jit::Stack in_double(torch::jit::Graph& body, const c10::IValue* inputs, std::size_t count, std::uint64_t most_bytes);

}  // namespace ipexrun::preload::graph
