#include "preload/plugin/graph/match.h"

#include <cmath>

namespace ipexrun::preload::graph {

void mark_read(const Argument& argument, std::vector<bool>* marks) {
  if (const Value value = value_of(argument); value != kNone) (*marks)[static_cast<std::size_t>(value)] = true;
  for (const Argument& element : argument.list) mark_read(element, marks);
}

Match::Match(const Graph& graph) : graph_(graph), makers_(graph.facts.size()), readers_(graph.facts.size()), results_(graph.facts.size()) {
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const Value value : graph.nodes[i].outputs) makers_[static_cast<std::size_t>(value)] = i;
    for (const Value value : Graph::reads(graph.nodes[i])) readers_[static_cast<std::size_t>(value)].push_back(i);
  }
  for (const Argument& output : graph.outputs) mark_read(output, &results_);
}

const Node* Match::maker(Value value) const {
  if (value == kNone) return nullptr;
  const std::optional<std::size_t> place = makers_[static_cast<std::size_t>(value)];
  return place ? &graph_.nodes[*place] : nullptr;
}

const Node* Match::maker(const Argument& argument) const { return maker(value_of(argument)); }

std::optional<std::size_t> Match::reader(Value value) const {
  const std::vector<std::size_t>& all = readers(value);
  return all.size() == 1 && !is_result(value) ? std::optional(all[0]) : std::nullopt;
}

Value value_of(const Argument& argument) { return argument.kind == Argument::Kind::kValue ? argument.value : kNone; }

std::optional<double> number_of(const Argument& argument) {
  if (argument.kind != Argument::Kind::kConstant || !(argument.constant.isInt() || argument.constant.isDouble())) return std::nullopt;
  return argument.constant.toScalar().toDouble();
}

bool is_number(const Argument& argument, double number) {
  const std::optional<double> is = number_of(argument);
  return is && std::abs(*is - number) <= 1e-6 * std::abs(number);
}

std::optional<std::vector<std::int64_t>> ints_of(const Argument& argument) {
  if (argument.kind == Argument::Kind::kConstant && argument.constant.isIntList()) return argument.constant.toIntVector();
  if (argument.kind != Argument::Kind::kList) return std::nullopt;
  std::vector<std::int64_t> ints;
  for (const Argument& element : argument.list) {
    if (element.kind != Argument::Kind::kConstant || !element.constant.isInt()) return std::nullopt;
    ints.push_back(element.constant.toInt());
  }
  return ints;
}

Value beside(const Node& node, Value value) {
  if (node.arguments[0].is_value(value)) return value_of(node.arguments[1]);
  return node.arguments[1].is_value(value) ? value_of(node.arguments[0]) : kNone;
}

}  // namespace ipexrun::preload::graph
