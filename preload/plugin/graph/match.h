// Who makes and who reads the values of a graph: what a pass that looks for patterns asks.
//
// Nodes go by their place, so a pass may rewrite nodes where they stand while it looks; it must not erase any.
#pragma once

#include <optional>
#include <vector>

#include "preload/plugin/graph/ir.h"

namespace ipexrun::preload::graph {

/// What the kernels of norms and attention compute with.
inline bool is_float(at::ScalarType dtype) { return dtype == at::kFloat || dtype == at::kBFloat16; }

/// Of the values that the argument names, in lists as well.
void mark_read(const Argument& argument, std::vector<bool>* marks);

class Match {
 public:
  explicit Match(const Graph& graph);

  [[nodiscard]] const Facts& facts(Value value) const { return graph_.facts[static_cast<std::size_t>(value)]; }
  /// Null for inputs.
  [[nodiscard]] const Node* maker(Value value) const;
  [[nodiscard]] const Node* maker(const Argument& argument) const;
  /// The node that reads the value, where there is one alone and the value is no result.
  [[nodiscard]] std::optional<std::size_t> reader(Value value) const;
  /// Places of its readers, in order; one that reads it twice stands there twice.
  [[nodiscard]] const std::vector<std::size_t>& readers(Value value) const { return readers_[static_cast<std::size_t>(value)]; }
  [[nodiscard]] bool is_result(Value value) const { return results_[static_cast<std::size_t>(value)]; }

 private:
  const Graph& graph_;
  std::vector<std::optional<std::size_t>> makers_;
  std::vector<std::vector<std::size_t>> readers_;
  std::vector<bool> results_;
};

/// The argument's value; kNone for constants and lists.
Value value_of(const Argument& argument);
/// The number that it is: a constant, or nothing.
std::optional<double> number_of(const Argument& argument);
/// It is the number, up to rounding of float32.
bool is_number(const Argument& argument, double number);
/// The ints of a constant list; nothing where a value is among them.
std::optional<std::vector<std::int64_t>> ints_of(const Argument& argument);
/// The other one of two arguments, where one is `value`; kNone where none is or the other is a constant.
Value beside(const Node& node, Value value);

}  // namespace ipexrun::preload::graph
