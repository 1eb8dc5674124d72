// Where the time of a captured graph goes, operator by operator, before and after: for reports.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "preload/plugin/graph/executor.h"
#include "preload/plugin/graph/ir.h"

namespace ipexrun::preload::graph {

/// How often an operator stands in a graph and the nanoseconds that it takes in one call, as captured and in our program.
struct OpTime {
  std::string op;
  std::int64_t before = 0;
  std::int64_t before_ns = 0;
  std::int64_t after = 0;
  std::int64_t after_ns = 0;
};

/// The same for Python: operator; before, before_ns, after, after_ns.
using OpTimeRow = std::tuple<std::string, std::vector<std::int64_t>>;
std::vector<OpTimeRow> rows_of(const std::vector<OpTime>& times);
std::vector<OpTime> times_of(const std::vector<OpTimeRow>& rows);

/// What a person would call the node: "addmm", "linear + gelu", "views".
std::string operator_name(const Node& node);

/// Runs the captured graph with torch's own kernels and then the program, a few times with these inputs (in the order of the graph's), with
/// a clock around every step, whose shortest time counts. Longest first; what lies behind the first fifteen is summed up as "others".
/// Throws what torch throws.
std::vector<OpTime> op_times(const Graph& captured, const Program& program, const Values& inputs);

/// [{"op": .., "before": .., "before_us": .., "after": .., "after_us": ..}, ..]
std::string op_times_json(const std::vector<OpTime>& times);

/// Into the launcher's report, for the graph of that number (IPEXRUN_EVENT_REGION).
void write_op_times(std::int64_t graph_number, const std::vector<OpTime>& times);

}  // namespace ipexrun::preload::graph
