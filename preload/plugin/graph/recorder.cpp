#include "preload/plugin/graph/recorder.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <stdexcept>
#include <string_view>
#include <unordered_set>

#include "preload/plugin/answer.h"
#include "preload/plugin/boxed_arguments.h"
#include "preload/plugin/graph/layout.h"

namespace ipexrun::preload::graph {
namespace {

/// Above autograd and in no tensor's key set, like the one that watches for drift; off unless a thread includes it.
constexpr c10::DispatchKey kKey = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

constinit thread_local Recorder* recording_here = nullptr;

[[noreturn]] void refuse(const std::string& why) { throw std::invalid_argument(why); }

bool is_composite(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) && !op.hasKernelForDispatchKey(c10::DispatchKey::CPU);
}

void called(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (recording_here == nullptr) {  // torch hands a thread's dispatch keys to the threads that work for it
    const c10::impl::ExcludeDispatchKeyGuard unseen(kKey);
    op.callBoxed(stack);
    return;
  }
  recording_here->called(op, keys, stack);
}

/// Composite operators whose own code reads only sizes, strides, dtypes and numbers. Others may look into memory without an operator.
bool composite_is_known(std::string_view name) {
  constexpr std::string_view kNames =
      " linear matmul layer_norm batch_norm group_norm instance_norm rms_norm conv1d conv2d conv3d conv_transpose1d "
      "conv_transpose2d conv_transpose3d scaled_dot_product_attention softmax log_softmax reshape reshape_as view_as "
      "flatten unflatten contiguous to type_as dropout feature_dropout alpha_dropout feature_alpha_dropout chunk "
      "unsafe_chunk swapaxes swapdims movedim moveaxis numpy_T mT mH adjoint expand_as einsum tensordot outer ger inner "
      "pad max_pool1d max_pool2d max_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d avg_pool1d "
      "upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d upsample_bicubic2d "
      "upsample_trilinear3d relu6 selu prelu log_sigmoid clip multiply divide subtract true_divide absolute negative "
      "concat concatenate hstack vstack dstack column_stack tile where size stride dim numel std var square narrow select "
      "squeeze broadcast_to ones_like zeros_like std_mean var_mean greater greater_equal less less_equal not_equal "
      "float_power is_floating_point lstm gru lstm_cell gru_cell rnn_tanh rnn_relu rnn_tanh_cell rnn_relu_cell arctan "
      "arctan2 fix l1_loss linalg_norm norm cosine_similarity pairwise_distance cumulative_trapezoid diff softmin addcmul "
      "silu gelu _autocast_to_reduced_precision _autocast_to_full_precision ";
  return kNames.find(" " + std::string(name) + " ") != std::string_view::npos;
}

/// Statistics of the batch would go into the running ones.
bool trains_a_norm(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& arguments) {
  if (schema.name() == "aten::batch_norm_update_stats") return true;
  const auto training = schema.argumentIndexWithName("training");
  const auto mean = schema.argumentIndexWithName("running_mean");
  if (!training || !mean || !arguments[static_cast<std::size_t>(*training)].toBool()) return false;
  const c10::IValue& kept = arguments[static_cast<std::size_t>(*mean)];
  return kept.isTensor() && kept.toTensor().defined();
}

bool depends_on_contents(const c10::OperatorHandle& op) {
  return op.hasTag(at::Tag::data_dependent_output) || op.hasTag(at::Tag::dynamic_output_shape);
}

/// Whether the program's autocast, under which the code runs that is recorded, stands between this operator and its kernel, and does
/// something. (Of composite operators what its wrappers call comes here, casts too.)
bool autocast_changes(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments) {
  if (!at::autocast::is_autocast_enabled(at::kCPU) || c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::AutocastCPU)) return false;
  if (!op.hasKernelForDispatchKey(c10::DispatchKey::AutocastCPU)) return false;
  static const std::unordered_set<std::string_view> products = {"aten::mm",      "aten::bmm",          "aten::addmm",
                                                                "aten::baddbmm", "aten::_convolution", "aten::convolution"};
  bool changes = products.count(op.schema().name()) == 0;
  for (const c10::IValue& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      changes = changes || (tensor.is_floating_point() && tensor.scalar_type() != at::autocast::get_autocast_dtype(at::kCPU));
    });
  }
  return changes;
}

/// In the form that AOTAutograd gives, which the passes know.
void make_usual(Node* node) {
  if (node->is("native_batch_norm", "") && node->arguments[5].constant.isBool()) {
    const bool of_batch = node->arguments[5].constant.toBool();  // its statistics, and check() saw that no others are kept
    const auto usual =
        c10::Dispatcher::singleton().findSchema(of_batch ? c10::OperatorName("aten::_native_batch_norm_legit", "no_stats")
                                                         : c10::OperatorName("aten::_native_batch_norm_legit_no_training", ""));
    if (!usual) return;
    node->op = usual;
    const auto first = node->arguments.begin();
    if (of_batch) {
      node->arguments.erase(first + 3, first + 5);
    } else {
      node->arguments.erase(first + 5);
    }
  } else if (node->is("_reshape_alias", "")) {
    const auto usual = c10::Dispatcher::singleton().findSchema({"aten::view", ""});
    if (!usual) return;
    node->op = usual;
    node->arguments.pop_back();
  } else if (node->is("_convolution", "") ||
             node->is("_convolution", "deprecated")) {  // as torch.jit.trace has it: no operator that the op tier answers
    constexpr std::size_t kOfConvolution = 9;           // the others are about GPUs
    const auto usual = c10::Dispatcher::singleton().findSchema({"aten::convolution", ""});
    if (!usual) return;
    node->op = usual;
    node->arguments.resize(kOfConvolution);
  }
}

/// A traced program has its numbers as tensors without dimensions. Where they move no dtype, they are numbers: passes look for these.
bool number_beside_tensor(const Node& node, const std::vector<c10::IValue>& arguments, const c10::IValue& result) {
  if (!node.is("mul", "Tensor") && !node.is("add", "Tensor") && !node.is("sub", "Tensor") && !node.is("div", "Tensor")) return false;
  const at::Tensor& tensor = arguments[0].toTensor();
  const Argument& number = node.arguments[1];
  return tensor.dim() > 0 && tensor.is_floating_point() && result.toTensor().scalar_type() == tensor.scalar_type() &&
         number.kind == Argument::Kind::kConstant && number.constant.isTensor();
}

}  // namespace

bool register_recorder() {
  if (c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(kKey)) return false;
  // Never destroyed, like our kernels.
  static auto* library = new torch::Library(torch::Library::IMPL, "_", kKey, "ipexrun", 0);
  library->fallback(torch::CppFunction::makeFromBoxedFunction<&called>());
  return true;
}

std::optional<c10::OperatorHandle> without_writing(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  const std::string& name = schema.name();
  if (name.empty() || name.back() != '_' || schema.returns().size() != 1 || schema.arguments().empty()) return std::nullopt;
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    const auto* alias = schema.arguments()[i].alias_info();
    if ((alias != nullptr && alias->isWrite()) != (i == 0)) return std::nullopt;
  }
  auto twin = c10::Dispatcher::singleton().findSchema({name.substr(0, name.size() - 1), schema.overload_name()});
  if (!twin || twin->schema().is_mutable() || twin->schema().arguments().size() != schema.arguments().size()) return std::nullopt;
  return twin;
}

bool recordable(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  const std::string_view name = schema.name();
  if (!name.starts_with("aten::") || depends_on_contents(op)) return false;
  if (schema.is_mutable() && !without_writing(op)) return false;
  if (!is_composite(op)) return true;
  std::string_view plain_name = name.substr(6);
  if (schema.is_mutable()) plain_name.remove_suffix(1);
  // tensor_split and the like read numbers out of tensors: none of those is in the list.
  return composite_is_known(plain_name) && !(plain_name == "lstm" && schema.overload_name() == "data");
}

void Recorder::keep(const at::Tensor& tensor, Value value, bool constant) {
  c10::weak_intrusive_ptr<c10::TensorImpl> object(tensor.getIntrusivePtr());
  c10::weak_intrusive_ptr<c10::StorageImpl> storage(tensor.storage().getWeakStorageImpl());
  known_.insert_or_assign(tensor.unsafeGetTensorImpl(), Known{value, constant, std::move(object), std::move(storage)});
}

void Recorder::input(const at::Tensor& tensor, bool weight) {
  if (!plain(tensor) || tensor.is_complex()) refuse("a tensor that is not plain");
  Facts facts{true, weight, tensor.scalar_type(), tensor.sizes().vec(), tensor.is_contiguous(), layout_of(tensor)};
  graph_.inputs.push_back(graph_.add_value(std::move(facts)));
  keep(tensor, graph_.inputs.back(), false);
  given_.insert(tensor.storage().unsafeGetStorageImpl());
}

const Recorder::Known* Recorder::known(const at::Tensor& tensor) const {
  const auto found = known_.find(tensor.unsafeGetTensorImpl());
  return found == known_.end() ? nullptr : &found->second;
}

Graph Recorder::record(c10::function_ref<torch::jit::Stack()> code) {
  torch::jit::Stack results;
  {
    struct Here {
      explicit Here(Recorder* mine) { recording_here = mine; }
      ~Here() { recording_here = nullptr; }
    } const here(this);
    const c10::impl::IncludeDispatchKeyGuard seen(kKey);
    try {
      results = code();
    } catch (const std::exception&) {
      if (problem_.empty()) throw;
    }
  }
  if (!problem_.empty()) refuse(problem_);
  std::unordered_set<const c10::StorageImpl*> taken = given_;
  for (const c10::IValue& result : results) graph_.outputs.push_back(output_of(result, &taken));
  return std::move(graph_);
}

Argument Recorder::output_of(const c10::IValue& result, std::unordered_set<const c10::StorageImpl*>* taken) const {
  if (result.isInt() || result.isDouble() || result.isBool() || result.isNone()) return Argument::of(result);
  if (!result.isTensor() || !result.toTensor().defined()) refuse("a result that is no tensor");
  const Known* value = known(result.toTensor());
  if (value == nullptr) refuse("a result that no operator made");
  if (!taken->insert(result.toTensor().storage().unsafeGetStorageImpl()).second) refuse("a result that shares memory with another tensor");
  return Argument::of(value->value);
}

void Recorder::called(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (is_composite(op)) {  // what it calls comes here
    op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), stack);
    return;
  }
  const c10::impl::ExcludeDispatchKeyGuard unseen(kKey);
  const std::size_t count = op.schema().arguments().size();
  const std::vector<c10::IValue> arguments(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  try {
    if (autocast_changes(op, arguments)) refuse("autocast changes the types of " + op.schema().name());
    check(op, arguments);
  } catch (const std::exception& problem) {
    problem_ = problem.what();
    throw;
  }
  op.callBoxed(stack);
  try {
    note(op, arguments, stack->data() + (stack->size() - op.schema().returns().size()));
  } catch (const std::exception& problem) {
    problem_ = problem.what();
    throw;
  }
}

bool Recorder::all_constant(const std::vector<c10::IValue>& arguments) const {
  bool all = true;
  for (const c10::IValue& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      const Known* value = known(tensor);
      all = all && (value == nullptr || value->constant);
    });
  }
  return all;
}

Argument Recorder::tensor_argument(const at::Tensor& tensor, bool as_number) {
  if (const Known* value = known(tensor)) return Argument::of(value->value);
  // Numbers that became tensors: of the program's text, or of sizes.
  if (!plain(tensor) || tensor.dim() != 0 || given_.count(tensor.storage().unsafeGetStorageImpl()) > 0)
    refuse("a tensor that no operator made");
  const TierOff stock;
  const at::Scalar number = tensor.item();
  if (as_number || (tensor.unsafeGetTensorImpl()->is_wrapped_number() && tensor.scalar_type() == number.type()))
    return Argument::of(c10::IValue(number));
  return Argument::of(c10::IValue(tensor.clone()));
}

Argument Recorder::argument_of(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor().defined() ? tensor_argument(value.toTensor(), false) : Argument::of(c10::IValue());
  if (!value.isList()) return Argument::of(value);
  std::vector<Argument> list;
  for (const c10::IValue& element : value.toListRef()) list.push_back(argument_of(element));
  return Argument::of(std::move(list));
}

Value Recorder::result_of(const at::Tensor& tensor, bool constant) {
  if (!plain(tensor) || tensor.is_complex()) refuse("a tensor that is not plain");
  const Value value =
      graph_.add_value({true, false, tensor.scalar_type(), tensor.sizes().vec(), tensor.is_contiguous(), layout_of(tensor)});
  keep(tensor, value, constant);
  return value;
}

std::vector<std::size_t> Recorder::views_of_others(const at::Tensor& written) const {
  const c10::StorageImpl* storage = written.storage().unsafeGetStorageImpl();
  const Known* start = known(written);
  if (start == nullptr || given_.count(storage) > 0) refuse("an operator writes into what it was given");
  std::unordered_set<Value> others;
  for (const auto& [object, other] : known_) {
    if (object == written.unsafeGetTensorImpl() || other.object.expired()) continue;
    const auto alive = other.storage.lock();
    if (alive.get() == storage) others.insert(other.value);
  }
  std::vector<std::size_t> views;
  Value seen = start->value;
  while (!others.empty()) {
    const auto made = std::find_if(graph_.nodes.rbegin(), graph_.nodes.rend(), [&](const Node& node) {
      return std::find(node.outputs.begin(), node.outputs.end(), seen) != node.outputs.end();
    });
    // Others than these two need not be undone: `x[:, 1:] = y` is what programs write.
    if (made == graph_.nodes.rend() || !(made->is("slice", "Tensor") || made->is("select", "int")))
      refuse("an operator writes into memory that others see");
    views.push_back(static_cast<std::size_t>(graph_.nodes.rend() - made) - 1);
    seen = made->arguments[0].value;
    others.erase(seen);
  }
  return views;
}

/// What the views are of gets the values that were written.
void Recorder::write_through(const std::vector<std::size_t>& views, Value written, bool constant) {
  for (const std::size_t place : views) {
    const Value whole = graph_.nodes[place].arguments[0].value;
    const bool all = graph_.facts[static_cast<std::size_t>(whole)].sizes == graph_.facts[static_cast<std::size_t>(written)].sizes;
    if (!all) {
      Node node;
      const bool slice = graph_.nodes[place].is("slice", "Tensor");
      node.op = c10::Dispatcher::singleton().findSchema({slice ? "aten::slice_scatter" : "aten::select_scatter", ""});
      if (!node.op) refuse("an operator writes into memory that others see");
      node.arguments = graph_.nodes[place].arguments;
      node.arguments.insert(node.arguments.begin() + 1, Argument::of(written));
      Facts facts = graph_.facts[static_cast<std::size_t>(whole)];
      facts.weight = false;
      written = graph_.add_value(std::move(facts));
      node.outputs.push_back(written);
      graph_.nodes.push_back(std::move(node));
    }
    for (auto& [object, other] : known_) {
      if (other.value != whole) continue;
      other.value = written;
      other.constant = other.constant && constant;
    }
  }
}

/// Before it runs: what it would do is not done twice.
void Recorder::check(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments) const {
  const c10::FunctionSchema& schema = op.schema();
  const std::string& name = schema.name();
  if (!std::string_view(name).starts_with("aten::")) refuse(name + " is not torch's own");
  if (depends_on_contents(op) && !all_constant(arguments)) refuse(name + " depends on what tensors hold");
  if (is_drawn_at_random(op, arguments)) refuse(name + " draws random numbers");
  if (trains_a_norm(schema, arguments)) refuse(name + " writes statistics");
  if (!schema.is_mutable()) return;
  if (!without_writing(op)) refuse(name + " writes into its arguments");
  views_of_others(arguments[0].toTensor());
}

void Recorder::note(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments, const c10::IValue* results) {
  const c10::FunctionSchema& schema = op.schema();
  const bool constant = all_constant(arguments);
  const auto views = schema.is_mutable() ? views_of_others(arguments[0].toTensor()) : std::vector<std::size_t>{};
  Node node;
  node.op = schema.is_mutable() ? without_writing(op) : op;
  const std::size_t count = schema.returns().size();
  const bool tensors = std::any_of(results, results + count, [](const c10::IValue& one) { return one.isTensor() || one.isTensorList(); });
  if (!tensors) return;  // numbers: the same in every call like this
  for (const c10::IValue& argument : arguments) node.arguments.push_back(argument_of(argument));
  if (number_beside_tensor(node, arguments, results[0])) node.arguments[1] = tensor_argument(arguments[1].toTensor(), true);
  make_usual(&node);
  std::vector<Node> items;
  for (std::size_t i = 0; i < count; ++i) {
    const c10::IValue& result = results[i];
    if (result.isTensor() && result.toTensor().defined()) {
      node.outputs.push_back(result_of(result.toTensor(), constant));
      continue;
    }
    node.outputs.push_back(graph_.add_value({}));
    if (!result.isTensorList()) continue;
    const auto list = result.toTensorVector();
    for (std::size_t element = 0; element < list.size(); ++element) {
      Node item;
      item.kind = Node::Kind::kItem;
      item.index = static_cast<std::int64_t>(element);
      item.arguments.push_back(Argument::of(node.outputs.back()));
      item.outputs.push_back(result_of(list[element], constant));
      items.push_back(std::move(item));
    }
  }
  const Value result = node.outputs[0];
  graph_.nodes.push_back(std::move(node));
  for (Node& item : items) graph_.nodes.push_back(std::move(item));
  write_through(views, result, constant);
}

}  // namespace ipexrun::preload::graph
