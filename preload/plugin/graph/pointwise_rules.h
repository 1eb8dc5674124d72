// What torch's element-wise operators are in instructions of kernels/pointwise.h.
#pragma once

#include <map>
#include <vector>

#include "kernels/pointwise.h"
#include "preload/plugin/graph/match.h"
#include "preload/plugin/graph/pointwise_step.h"

namespace ipexrun::preload::graph {

/// Instructions over any number of registers, each written once.
struct PointwiseCode {
  struct Line {
    kernels::Point what;
    int to;
    int operands[3];  ///< the last repeated where there are fewer
  };
  std::vector<Value> inputs;
  std::map<Value, int> registers;  ///< of inputs and results
  std::map<float, int> constants;  ///< their registers
  std::vector<Line> lines;
  int count = 0;  ///< of registers
};

/// A tensor of a dtype that a pass writes: float32, bfloat16, bool.
bool pointwise_result(const Facts& facts);

/// Whether the operator alone is worth a pass: stock's kernel is slow.
bool alone_pays(const Node& node);

/// Appends the operator; false, with `code` in any state, where it has a form that a pass does not compute as stock does.
bool emit_pointwise(const Node& node, const Match& match, PointwiseCode* code);

/// Registers become slots, used again where nobody reads them any more; fills what `made` lacks, results get theirs. False where there are
/// too few.
bool assign_slots(const PointwiseCode& code, Pointwise* made);

}  // namespace ipexrun::preload::graph
