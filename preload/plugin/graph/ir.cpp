#include "preload/plugin/graph/ir.h"

#include <cstring>
#include <string>

namespace ipexrun::preload::graph {
namespace {

void collect(const Argument& argument, std::vector<Value>* values) {
  if (argument.kind == Argument::Kind::kValue && argument.value != kNone) values->push_back(argument.value);
  for (const Argument& element : argument.list) collect(element, values);
}

void substitute(Argument* argument, Value from, Value to) {
  if (argument->is_value(from)) argument->value = to;
  for (Argument& element : argument->list) substitute(&element, from, to);
}

/// Calls `what` with each value of a node that is none of its arguments.
template <typename AnyNode, typename What>
void for_each_field(AnyNode& node, What what) {
  auto& linear = node.linear;
  auto& convolution = node.convolution;
  for (auto* value : {&linear.x, &linear.weight, &linear.bias, &linear.other}) what(*value);
  for (auto* value : {&convolution.x, &convolution.weight, &convolution.bias, &convolution.mean, &convolution.variance, &convolution.scale,
                      &convolution.shift, &convolution.other}) {
    what(*value);
  }
}

}  // namespace

Argument Argument::of(Value value) {
  Argument made;
  made.kind = Kind::kValue;
  made.value = value;
  return made;
}

Argument Argument::of(c10::IValue constant) {
  Argument made;
  made.constant = std::move(constant);
  return made;
}

Argument Argument::of(std::vector<Argument> list) {
  Argument made;
  made.kind = Kind::kList;
  made.list = std::move(list);
  return made;
}

bool Node::is(const char* name, const char* overload) const {
  if (kind != Kind::kOperator || !op) return false;
  const c10::OperatorName& own = op->operator_name();
  return own.name.compare(0, 6, "aten::") == 0 && own.name.compare(6, std::string::npos, name) == 0 && own.overload_name == overload;
}

bool append_text(const Argument& argument, std::string* key) {
  const auto put = [&](char kind, std::int64_t number) { *key += kind + std::to_string(number) + ','; };
  switch (argument.kind) {
    case Argument::Kind::kValue:
      put('v', argument.value);
      return true;
    case Argument::Kind::kList:
      *key += '[';
      for (const Argument& element : argument.list) {
        if (!append_text(element, key)) return false;
      }
      *key += ']';
      return true;
    case Argument::Kind::kConstant:
      break;
  }
  const c10::IValue& constant = argument.constant;
  if (constant.isNone()) {
    *key += 'n';
  } else if (constant.isBool()) {
    put('b', constant.toBool() ? 1 : 0);
  } else if (constant.isInt()) {
    put('i', constant.toInt());
  } else if (constant.isDouble()) {
    const double number = constant.toDouble();
    std::int64_t bits = 0;
    std::memcpy(&bits, &number, sizeof bits);
    put('d', bits);
  } else if (constant.isString()) {
    put('s', static_cast<std::int64_t>(constant.toStringRef().size()));
    *key += constant.toStringRef();
  } else if (constant.isDevice()) {
    *key += 'c';  // every tensor of a graph is on the CPU
  } else if (constant.isIntList()) {
    *key += '(';
    for (const std::int64_t number : constant.toIntVector()) put('i', number);
    *key += ')';
  } else {
    return false;
  }
  return true;
}

Value Graph::add_value(Facts about) {
  facts.push_back(std::move(about));
  return static_cast<Value>(facts.size()) - 1;
}

std::vector<Value> Graph::reads(const Node& node) {
  std::vector<Value> values;
  for (const Argument& argument : node.arguments) collect(argument, &values);
  for_each_field(node, [&](Value value) {
    if (value != kNone) values.push_back(value);
  });
  return values;
}

void rename(Argument* argument, const std::vector<Value>& names) {
  if (argument->kind == Argument::Kind::kValue && argument->value != kNone)
    argument->value = names[static_cast<std::size_t>(argument->value)];
  for (Argument& element : argument->list) rename(&element, names);
}

void rename(Node* node, const std::vector<Value>& names) {
  for (Argument& argument : node->arguments) rename(&argument, names);
  for_each_field(*node, [&](Value& value) {
    if (value != kNone) value = names[static_cast<std::size_t>(value)];
  });
}

std::vector<int> Graph::uses() const {
  std::vector<int> count(facts.size(), 0);
  for (const Node& node : nodes) {
    for (const Value value : reads(node)) ++count[static_cast<std::size_t>(value)];
  }
  std::vector<Value> results;
  for (const Argument& output : outputs) collect(output, &results);
  for (const Value value : results) ++count[static_cast<std::size_t>(value)];
  return count;
}

void Graph::replace(Value from, Value to, std::size_t first) {
  for (std::size_t i = first; i < nodes.size(); ++i) {
    for (Argument& argument : nodes[i].arguments) substitute(&argument, from, to);
    for_each_field(nodes[i], [&](Value& value) {
      if (value == from) value = to;
    });
  }
  for (Argument& output : outputs) substitute(&output, from, to);
}

}  // namespace ipexrun::preload::graph
