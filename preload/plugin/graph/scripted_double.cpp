#include "preload/plugin/graph/scripted_double.h"

#include <ATen/core/function_schema.h>
#include <ATen/record_function.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <optional>
#include <stdexcept>
#include <vector>

#include "preload/plugin/tier.h"

namespace ipexrun::preload::graph {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace attr = torch::jit::attr;

/// float32 and its complex numbers as float64, within a bound of bytes.
class Widener {
 public:
  explicit Widener(std::uint64_t most_bytes) : left_(most_bytes) {}

  at::Tensor operator()(const at::Tensor& tensor) {
    const at::ScalarType wide = tensor.scalar_type() == at::kFloat ? at::kDouble : at::kComplexDouble;
    const std::uint64_t bytes = static_cast<std::uint64_t>(tensor.numel()) * 2 * tensor.element_size();
    if (bytes > left_) throw std::length_error("a region in float64 would take too much memory");
    left_ -= bytes;
    return tensor.to(wide);
  }

  c10::IValue operator()(const c10::IValue& value) {
    if (value.isTensor() && is_single(value.toTensor())) return (*this)(value.toTensor());
    if (!value.isTensorList()) return value;
    c10::List<at::Tensor> wide;
    for (const at::Tensor& one : value.toTensorVector()) wide.push_back(is_single(one) ? (*this)(one) : one);
    return wide;
  }

  static bool is_single(const at::Tensor& tensor) {
    return tensor.defined() && (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kComplexFloat);
  }

 private:
  std::uint64_t left_;
};

/// Whether an operator's argument is a dtype.
bool is_dtype(const c10::Argument& argument) {
  c10::TypePtr type = argument.real_type();
  if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  return type->kind() == c10::TypeKind::ScalarTypeType;
}

/// Throws std::invalid_argument where a dtype is computed.
void widen_dtypes(Node* node, Graph* graph) {
  const c10::FunctionSchema* schema = node->maybeSchema();
  if (schema == nullptr) return;
  for (std::size_t i = 0; i < schema->arguments().size() && i < node->inputs().size(); ++i) {
    if (!is_dtype(schema->arguments()[i])) continue;
    const std::optional<c10::IValue> known = torch::jit::toIValue(node->input(i));
    if (!known) throw std::invalid_argument("a dtype is computed");
    if (!known->isInt() || known->toInt() != static_cast<std::int64_t>(at::kFloat)) continue;
    const torch::jit::WithInsertPoint here(node);
    node->replaceInput(i, graph->insertConstant(static_cast<std::int64_t>(at::kDouble)));
  }
}

void widen_constant(Node* node, Widener* widen) {
  const std::optional<c10::IValue> known = torch::jit::toIValue(node->output());
  if (!known || !known->isTensor() || !Widener::is_single(known->toTensor())) return;
  const at::Tensor wide = (*widen)(known->toTensor());
  node->t_(attr::value, wide);
  node->output()->inferTypeFrom(wide);
}

}  // namespace

torch::jit::Stack in_double(Graph& body, const c10::IValue* inputs, std::size_t count, std::uint64_t most_bytes) {
  const TierOff stock;
  const at::DisableRecordFunctionGuard not_in_profiles;
  try {
    Widener widen(most_bytes);
    const std::shared_ptr<Graph> graph = body.copy();
    for (Node* node : graph->nodes()) {
      if (!node->blocks().empty()) return {};
      node->kind() == torch::jit::prim::Constant ? widen_constant(node, &widen) : widen_dtypes(node, graph.get());
    }
    torch::jit::Stack stack;
    for (std::size_t i = 0; i < count; ++i) stack.push_back(widen(inputs[i]));
    torch::jit::Code code(graph, "ipexrun");
    torch::jit::InterpreterState(code).run(stack);
    return stack;
  } catch (const std::exception&) {  // an operator that knows no float64
    return {};
  }
}

}  // namespace ipexrun::preload::graph
