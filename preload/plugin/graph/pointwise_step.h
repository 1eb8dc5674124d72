// The step of a row of element-wise operators: kernels/pointwise.h over tensors as they lie, in one pass.
#pragma once

#include <memory>
#include <vector>

#include "kernels/pointwise.h"
#include "preload/plugin/graph/executor.h"

namespace ipexrun::preload::graph {

/// A row of operators whose results all have the same sizes. Values are those of the graph when the row was made.
struct Pointwise {
  struct Result {
    Value value = kNone;
    int slot = 0;
    at::ScalarType dtype = at::kFloat;
  };
  /// What an instruction computes of whole results, for sizes and strides: the operators that the row is made of.
  struct Member {
    std::vector<int> inputs;   ///< places in `inputs`
    std::vector<int> members;  ///< earlier ones that it reads
  };
  std::vector<Node> nodes;  ///< the operators: for tensors that the kernel does not take
  std::vector<Member> members;
  std::vector<Value> inputs;
  std::vector<float> constants;
  std::vector<kernels::PointInstruction> instructions;
  std::vector<Result> results;
  int slots = 0;
};

/// node.pointwise; `arguments` are its inputs, `outputs` its results. Sizes and strides of results are stock's: operands that do not
/// broadcast have to lie alike, without gaps; what broadcasts must not lie in another order. Everything else is torch's operators, one by
/// one.
std::unique_ptr<Step> make_pointwise_step(const Node& node);

}  // namespace ipexrun::preload::graph
