#include "preload/plugin/graph/executor.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/jit_type.h>
#include <ATen/core/stack.h>

#include <algorithm>
#include <functional>
#include <map>
#include <stdexcept>
#include <utility>

#include "preload/plugin/answer.h"
#include "preload/plugin/drift_switch.h"
#include "preload/plugin/graph/attention_step.h"
#include "preload/plugin/graph/convolution_step.h"
#include "preload/plugin/graph/embedding_step.h"
#include "preload/plugin/graph/joined_step.h"
#include "preload/plugin/graph/linear_step.h"
#include "preload/plugin/graph/op_times.h"
#include "preload/plugin/graph/view_step.h"
#include "preload/plugin/graph/weights_step.h"
#include "preload/plugin/parallel.h"
#include "preload/plugin/scratch.h"
#include "preload/plugin/tier_state.h"
#include "preload/plugin/weight_use.h"
#include "preload/select/clock.h"
#include "preload/select/looks.h"

namespace ipexrun::preload::graph {
namespace {

/// What stands for a number where a schema says Tensor, as Python's binding makes it.
at::Tensor wrapped(const at::Scalar& number) {
  at::Tensor tensor = c10::scalar_to_tensor(number);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

c10::IValue list_of(const std::vector<c10::IValue>& elements, const c10::Type* type) {
  const c10::ListType* list = type == nullptr ? nullptr : type->castRaw<c10::ListType>();
  const c10::TypeKind kind = list == nullptr ? c10::TypeKind::TensorType : list->getElementType()->kind();
  switch (kind) {
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType: {
      c10::List<std::int64_t> made;
      for (const c10::IValue& element : elements) made.push_back(element.toInt());
      return made;
    }
    case c10::TypeKind::FloatType: {
      c10::List<double> made;
      for (const c10::IValue& element : elements) made.push_back(element.toScalar().toDouble());
      return made;
    }
    case c10::TypeKind::BoolType: {
      c10::List<bool> made;
      for (const c10::IValue& element : elements) made.push_back(element.toBool());
      return made;
    }
    case c10::TypeKind::NumberType: {
      c10::impl::GenericList made(c10::NumberType::get());
      for (const c10::IValue& element : elements) made.push_back(element);
      return made;
    }
    case c10::TypeKind::OptionalType: {
      c10::List<std::optional<at::Tensor>> made;
      for (const c10::IValue& element : elements) made.push_back(element.isNone() ? std::nullopt : std::optional(element.toTensor()));
      return made;
    }
    default: {
      c10::List<at::Tensor> made;
      for (const c10::IValue& element : elements) made.push_back(element.toTensor());
      return made;
    }
  }
}

/// Optional arguments are like those they may hold.
const c10::Type* inside(const c10::Type* type) {
  if (type == nullptr) return nullptr;
  const auto* optional = type->castRaw<c10::OptionalType>();
  return optional == nullptr ? type : optional->getElementType().get();
}

/// A constant in the type that the schema has: Python writes 1 for 1.0 and numbers for tensors.
c10::IValue converted(const c10::IValue& constant, const c10::Type* type) {
  if (type == nullptr || constant.isNone()) return constant;
  if (type->kind() == c10::TypeKind::TensorType && constant.isScalar()) return wrapped(constant.toScalar());
  if (type->kind() == c10::TypeKind::FloatType && constant.isInt()) return static_cast<double>(constant.toInt());
  return constant;
}

class OperatorStep final : public Step {
 public:
  explicit OperatorStep(const Node& node) : op_(*node.op), outputs_(node.outputs) {
    const auto& schema = op_.schema().arguments();
    if (node.arguments.size() != schema.size()) throw std::invalid_argument("arguments of " + toString(op_.operator_name()));
    for (std::size_t i = 0; i < schema.size(); ++i) {
      types_.push_back(schema[i].real_type());  // SymInt stays what it is: a boxed kernel takes ints for it
      Argument argument = node.arguments[i];
      if (argument.kind == Argument::Kind::kConstant) argument.constant = converted(argument.constant, inside(types_[i].get()));
      arguments_.push_back(std::move(argument));
    }
  }

  void run(Values& values) const override {
    torch::jit::Stack stack;
    stack.reserve(arguments_.size());
    for (std::size_t i = 0; i < arguments_.size(); ++i) stack.push_back(resolve(arguments_[i], values, inside(types_[i].get())));
    op_.callBoxed(&stack);
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      c10::IValue& result = stack[i];
      if (result.isSymInt()) result = result.toSymInt().expect_int();
      values[static_cast<std::size_t>(outputs_[i])] = std::move(result);
    }
  }

 private:
  c10::OperatorHandle op_;
  std::vector<c10::TypePtr> types_;
  std::vector<Argument> arguments_;
  std::vector<Value> outputs_;
};

class ItemStep final : public Step {
 public:
  explicit ItemStep(const Node& node) : from_(node.arguments[0].value), to_(node.outputs[0]), index_(node.index) {}
  void run(Values& values) const override {
    values[static_cast<std::size_t>(to_)] = values[static_cast<std::size_t>(from_)].toTensorVector().at(static_cast<std::size_t>(index_));
  }

 private:
  Value from_;
  Value to_;
  std::int64_t index_;
};

/// Python's results: rounded towards minus infinity, with the sign of the divisor.
std::int64_t computed(Arithmetic what, std::int64_t a, std::int64_t b) {
  switch (what) {
    case Arithmetic::kAdd:
      return a + b;
    case Arithmetic::kSub:
      return a - b;
    case Arithmetic::kMul:
      return a * b;
    case Arithmetic::kMax:
      return std::max(a, b);
    case Arithmetic::kMin:
      return std::min(a, b);
    case Arithmetic::kFloorDiv:
    case Arithmetic::kMod:
      break;
  }
  if (b == 0) throw std::domain_error("a size divided by 0");
  const std::int64_t rest = a % b != 0 && (a % b < 0) != (b < 0) ? a % b + b : a % b;
  return what == Arithmetic::kMod ? rest : (a - rest) / b;
}

class NumberStep final : public Step {
 public:
  explicit NumberStep(const Node& node)
      : a_(node.arguments[0]), b_(node.arguments[1]), to_(node.outputs[0]), what_(static_cast<Arithmetic>(node.index)) {}
  void run(Values& values) const override {
    values[static_cast<std::size_t>(to_)] = computed(what_, resolve(a_, values, nullptr).toInt(), resolve(b_, values, nullptr).toInt());
  }

 private:
  Argument a_;
  Argument b_;
  Value to_;
  Arithmetic what_;
};

std::unique_ptr<Step> step_of(const Node& node) {
  switch (node.kind) {
    case Node::Kind::kItem:
      return std::make_unique<ItemStep>(node);
    case Node::Kind::kNumber:
      return std::make_unique<NumberStep>(node);
    case Node::Kind::kAttention:
      return make_attention_step(node);
    case Node::Kind::kLinear:
      return std::make_unique<LinearStep>(node);
    case Node::Kind::kOwn:
      return node.own_step(node);
    case Node::Kind::kConvolution:
      return std::make_unique<ConvolutionStep>(node);
    case Node::Kind::kReorder:
      return std::make_unique<ReorderStep>(node);
    case Node::Kind::kOperator:
      break;
  }
  if (auto view = make_view_step(node)) return view;
  if (auto rows = make_embedding_step(node)) return rows;
  return std::make_unique<OperatorStep>(node);
}

}  // namespace

std::unique_ptr<Step> make_operator_step(const Node& node) { return std::make_unique<OperatorStep>(node); }

c10::IValue resolve(const Argument& argument, const Values& values, const c10::Type* type) {
  switch (argument.kind) {
    case Argument::Kind::kConstant:
      return argument.constant;
    case Argument::Kind::kValue: {
      if (argument.value == kNone) return {};
      const c10::IValue& value = values[static_cast<std::size_t>(argument.value)];
      return type != nullptr && type->kind() == c10::TypeKind::TensorType && value.isScalar() ? wrapped(value.toScalar()) : value;
    }
    case Argument::Kind::kList:
      break;
  }
  std::vector<c10::IValue> elements;
  elements.reserve(argument.list.size());
  for (const Argument& element : argument.list) elements.push_back(resolve(element, values, nullptr));
  return list_of(elements, type);
}

namespace {

/// Its results have memory of their own.
bool computes(const Node& node) {
  return node.kind == Node::Kind::kLinear || node.kind == Node::Kind::kConvolution || node.kind == Node::Kind::kAttention;
}

/// Values whose memory results may lie in: results themselves, and what steps make them of that may return views of their arguments.
std::vector<bool> under_results(const Graph& graph) {
  std::vector<bool> under(graph.facts.size(), false);
  const std::function<void(const Argument&)> mark = [&](const Argument& argument) {
    if (argument.kind == Argument::Kind::kValue && argument.value != kNone) under[static_cast<std::size_t>(argument.value)] = true;
    for (const Argument& element : argument.list) mark(element);
  };
  for (const Argument& output : graph.outputs) mark(output);
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    if (computes(*node) ||
        std::none_of(node->outputs.begin(), node->outputs.end(), [&](Value value) { return under[static_cast<std::size_t>(value)]; }))
      continue;
    for (const Value value : Graph::reads(*node)) under[static_cast<std::size_t>(value)] = true;
  }
  return under;
}

}  // namespace

Program::Program(const Graph& graph, Steps steps) : count_(graph.facts.size()), inputs_(graph.inputs), outputs_(graph.outputs) {
  std::vector<std::size_t> last(count_, 0);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const Value value : Graph::reads(graph.nodes[i])) last[static_cast<std::size_t>(value)] = i;
    for (const Value value : graph.nodes[i].outputs) last[static_cast<std::size_t>(value)] = i;  // read by nobody: gone at once
  }
  const std::vector<bool> under = under_results(graph);
  const std::vector<int> uses = graph.uses();
  std::vector<int> inside(count_, 0);
  for (const Node& node : graph.nodes) {
    for (const Value value : Graph::reads(node)) ++inside[static_cast<std::size_t>(value)];
  }
  std::vector<bool> computed_here(count_, false);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const bool plain = steps == Steps::kOperators && graph.nodes[i].kind == Node::Kind::kOperator;
    Planned planned{plain ? make_operator_step(graph.nodes[i]) : step_of(graph.nodes[i]), {}};
    names_.push_back(operator_name(graph.nodes[i]));
    for (const Value value : graph.nodes[i].outputs) planned.outlives = planned.outlives || under[static_cast<std::size_t>(value)];
    std::vector<Value> touched = Graph::reads(graph.nodes[i]);
    touched.insert(touched.end(), graph.nodes[i].outputs.begin(), graph.nodes[i].outputs.end());
    for (const Value value : touched) {
      const auto at = static_cast<std::size_t>(value);
      if (last[at] != i || uses[at] != inside[at]) continue;  // read later, or a result
      planned.last_read.push_back(value);
      if (!planned.outlives && computed_here[at]) planned.step->may_reuse(value);
    }
    if (computes(graph.nodes[i])) {
      for (const Value value : graph.nodes[i].outputs) computed_here[static_cast<std::size_t>(value)] = true;
    }
    steps_.push_back(std::move(planned));
  }
  plan_looks(graph);
  scratch_user_begins();
}

void Program::plan_looks(const Graph& graph) {
  // Of less no worker need be woken: products of such weights may do without, and caches hold them.
  constexpr std::size_t kLeast = 16;
  constexpr std::int64_t kLeastBytes = std::int64_t{8} << 20;
  std::vector<bool> given(count_, false);
  for (const Value input : inputs_) given[static_cast<std::size_t>(input)] = graph.facts[static_cast<std::size_t>(input)].tensor;
  std::int64_t bytes = 0;
  const auto add = [&](Value value, bool whole) {
    if (value == kNone || !given[static_cast<std::size_t>(value)] ||
        graph.facts[static_cast<std::size_t>(value)].dtype == at::ScalarType::Undefined)
      return;
    looked_.push_back({value, whole});
    const Facts& facts = graph.facts[static_cast<std::size_t>(value)];
    auto size = static_cast<std::int64_t>(c10::elementSize(facts.dtype));
    for (const std::int64_t each : facts.sizes) size *= std::max<std::int64_t>(each, 0);
    bytes += size;
  };
  for (const Node& node : graph.nodes) {
    if (node.kind == Node::Kind::kLinear) add(node.linear.weight, false);
    if (node.own_step == make_joined_step) {
      for (std::size_t i = 1; i < node.arguments.size(); i += 2) add(node.arguments[i].value, false);
    }
    if (node.own_step == make_weights_step) {
      for (const Argument& argument : node.arguments) add(argument.value, false);
    }
    if (node.kind != Node::Kind::kConvolution) continue;
    const Convolution& c = node.convolution;
    add(c.weight, false);
    if (c.variance == kNone) continue;
    for (const Value value : {c.bias, c.mean, c.variance, c.scale, c.shift}) add(value, true);
  }
  if (looked_.size() < kLeast || bytes < kLeastBytes) looked_.clear();
}

void Program::look(const Values& values, Looks* looks) const {
  if (looked_.empty()) return;
  const TierState* state = tier();
  const kernels::Parallel pool = torch_pool();
  if (state == nullptr || state->weights.read_only() || pool.threads < 2) return;  // read-only: after a fork, where workers may be gone
  looks->reserve(looked_.size());
  for (const Looked& looked : looked_) {
    const c10::IValue& value = values[static_cast<std::size_t>(looked.value)];
    if (!value.isTensor() || !value.toTensor().defined() || !plain(value.toTensor())) continue;
    const at::Tensor& tensor = value.toTensor();
    if (looked.whole && !tensor.is_contiguous()) continue;
    looks->add(tensor.const_data_ptr(), looked.whole ? tensor.nbytes() : weight_use_of(tensor).size_bytes,
               looked.whole ? Looks::Of::kAllBytes : Looks::Of::kSample);
  }
  looks->take(pool);
}

Program::~Program() { scratch_user_ends(); }

Values Program::run(Values inputs, std::vector<std::int64_t>* step_ns, const Watch* watch) const {
  if (inputs.size() != inputs_.size())
    throw std::invalid_argument("a graph of " + std::to_string(inputs_.size()) + " inputs got " + std::to_string(inputs.size()));
  const at::AutoDispatchBelowADInplaceOrView below;
  const DriftApart unseen;
  ScratchRun scratch;
  Values values(count_);
  for (std::size_t i = 0; i < inputs.size(); ++i) values[static_cast<std::size_t>(inputs_[i])] = std::move(inputs[i]);
  Looks looks;
  look(values, &looks);
  const LooksOfRun of_run(&looks);
  std::size_t step = 0;
  for (const Planned& planned : steps_) {
    scratch.pause(planned.outlives);
    const std::int64_t started_ns = step_ns == nullptr ? 0 : steady_clock().now_ns();
    planned.step->run(values);
    if (step_ns != nullptr) step_ns->push_back(steady_clock().now_ns() - started_ns);
    if (watch != nullptr) (*watch)(step++, values);
    for (const Value value : planned.last_read) values[static_cast<std::size_t>(value)] = {};
  }
  Values results;
  results.reserve(outputs_.size());
  for (const Argument& output : outputs_) {
    c10::IValue result = resolve(output, values, nullptr);
    results.push_back(result.isTensor() && result.toTensor().defined() ? lasting(result.toTensor()) : std::move(result));
  }
  return results;
}

bool Program::be_exact() const {
  bool changed = false;
  for (const Planned& planned : steps_) changed = planned.step->be_exact() || changed;
  return changed;
}

std::string Program::kernels() const {
  std::map<std::string, int> counts;
  for (const Planned& planned : steps_) {
    if (const char* name = planned.step->kernel()) ++counts[name];
  }
  std::vector<std::pair<std::string, int>> sorted(counts.begin(), counts.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (const auto& [name, count] : sorted) text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + name;
  return text;
}

}  // namespace ipexrun::preload::graph
