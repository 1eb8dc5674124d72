#include "preload/plugin/graph/part_text.h"

#include <cmath>
#include <cstdio>
#include <map>
#include <stdexcept>

#include "preload/plugin/plain_numbers.h"

namespace ipexrun::preload::graph {
namespace {

std::string list_text(const std::vector<std::int64_t>& numbers) {
  std::string text = "[";
  for (const std::int64_t number : numbers) text += (text.size() > 1 ? ", " : "") + std::to_string(number);
  return text + ']';
}

/// As Python's json reads it: with Infinity and NaN.
std::string number_text(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
  const PlainNumbers plain;
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", number);
  const std::string made(text);
  return made.find_first_of(".e") == std::string::npos ? made + ".0" : made;
}

std::string in_quotes(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20) throw std::invalid_argument("a text with control characters");
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

class Writer {
 public:
  Writer(const std::vector<Node>& nodes, const std::vector<PartInput>& looks, std::vector<at::Tensor>* constants)
      : nodes_(nodes), looks_(looks), constants_(*constants) {}

  std::string write(const std::vector<Value>& inputs, const std::vector<Value>& outputs) {
    std::string heads;
    const auto head = [&](at::ScalarType dtype, const std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& strides) {
      heads += (heads.empty() ? "" : ", ") + std::string("{\"dtype\": ") + std::to_string(static_cast<int>(dtype)) +
               ", \"sizes\": " + list_text(sizes) + ", \"strides\": " + list_text(strides) + '}';
    };
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (looks_[i].tensor) {
        numbers_.emplace(inputs[i], next_++);
        head(looks_[i].dtype, looks_[i].sizes, looks_[i].strides);
      } else {
        ints_.emplace(inputs[i], looks_[i].number);
      }
    }
    for (const Node& node : nodes_) {
      for (const Argument& argument : node.arguments) find_constants(argument);
    }
    next_constant_ = next_;
    next_ += static_cast<int>(constants_.size());
    for (const at::Tensor& constant : constants_) head(constant.scalar_type(), constant.sizes().vec(), constant.strides().vec());
    std::string lines;
    for (const Node& node : nodes_) lines += (lines.empty() ? "" : ",\n ") + node_text(node);
    std::string results;
    for (const Value value : outputs) results += (results.empty() ? "" : ", ") + std::to_string(numbers_.at(value));
    return "{\"inputs\": [" + heads + "],\n\"nodes\": [" + lines + "],\n\"values\": [" + results + "]}\n";
  }

 private:
  void find_constants(const Argument& argument) {
    if (argument.kind == Argument::Kind::kConstant && argument.constant.isTensor()) constants_.push_back(argument.constant.toTensor());
    for (const Argument& element : argument.list) find_constants(element);
  }

  std::string node_text(const Node& node) {
    std::string text;
    if (node.kind == Node::Kind::kItem) {
      text = "{\"list\": " + std::to_string(numbers_.at(node.arguments[0].value)) + ", \"item\": " + std::to_string(node.index);
    } else {
      text = "{\"op\": " + in_quotes(node.op->operator_name().name) +
             ", \"overload\": " + in_quotes(node.op->operator_name().overload_name) + ", \"arguments\": [";
      for (std::size_t i = 0; i < node.arguments.size(); ++i) text += (i == 0 ? "" : ", ") + argument_text(node.arguments[i]);
      text += ']';
    }
    text += ", \"values\": [";
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      numbers_.emplace(node.outputs[i], next_);
      text += (i == 0 ? "" : ", ") + std::to_string(next_++);
    }
    return text + "]}";
  }

  std::string argument_text(const Argument& argument) {
    if (argument.kind == Argument::Kind::kList) {
      std::string text = "{\"list\": [";
      for (std::size_t i = 0; i < argument.list.size(); ++i) text += (i == 0 ? "" : ", ") + argument_text(argument.list[i]);
      return text + "]}";
    }
    if (argument.kind == Argument::Kind::kValue) {
      if (argument.value == kNone) return "null";
      const auto number = ints_.find(argument.value);
      if (number != ints_.end()) return "{\"number\": " + std::to_string(number->second) + '}';
      return "{\"value\": " + std::to_string(numbers_.at(argument.value)) + '}';
    }
    return constant_text(argument.constant);
  }

  std::string constant_text(const c10::IValue& constant) {
    if (constant.isNone()) return "null";
    if (constant.isTensor()) return "{\"value\": " + std::to_string(next_constant_++) + '}';
    if (constant.isBool()) return std::string("{\"bool\": ") + (constant.toBool() ? "true}" : "false}");
    if (constant.isInt()) return "{\"number\": " + std::to_string(constant.toInt()) + '}';
    if (constant.isDouble()) return "{\"number\": " + number_text(constant.toDouble()) + '}';
    if (constant.isComplexDouble()) {
      const c10::complex<double> number = constant.toComplexDouble();
      return "{\"complex\": [" + number_text(number.real()) + ", " + number_text(number.imag()) + "]}";
    }
    if (constant.isString()) return "{\"text\": " + in_quotes(constant.toStringRef()) + '}';
    if (constant.isDevice()) return "{\"device\": " + in_quotes(constant.toDevice().str()) + '}';
    if (constant.isList()) {
      std::string text = "{\"list\": [";
      const auto elements = constant.toListRef();
      for (std::size_t i = 0; i < elements.size(); ++i) {
        if (elements[i].isTensor()) throw std::invalid_argument("a list of tensors that is a constant");
        text += (i == 0 ? "" : ", ") + constant_text(elements[i]);
      }
      return text + "]}";
    }
    throw std::invalid_argument("a constant of kind " + constant.tagKind());
  }

  const std::vector<Node>& nodes_;
  const std::vector<PartInput>& looks_;
  std::vector<at::Tensor>& constants_;
  std::map<Value, int> numbers_;
  std::map<Value, std::int64_t> ints_;
  int next_ = 0;
  int next_constant_ = 0;
};

}  // namespace

std::string text_of_part(const std::vector<Node>& nodes, const std::vector<Value>& inputs, const std::vector<PartInput>& looks,
                         const std::vector<Value>& outputs, std::vector<at::Tensor>* constants) {
  return Writer(nodes, looks, constants).write(inputs, outputs);
}

}  // namespace ipexrun::preload::graph
