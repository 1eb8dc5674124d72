// Elementwise operators, one boxed function over a table: which arguments of the schema are operands, parameters and results.
#include <ATen/ScalarOps.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/sub.h>
#include <torch/library.h>

#include <cmath>
#include <limits>
#include <string_view>
#include <unordered_map>

#include "preload/xpu/fallback.h"
#include "preload/xpu/grid.h"
#include "preload/xpu/operators.h"

namespace ipexrun::preload::xpu {
namespace {

using at::ScalarType;
using at::Tensor;

enum class Kind {
  kCommon,   ///< operands are promoted, the result has their common type
  kFloat,    ///< likewise, integers become float
  kCompare,  ///< operands are promoted, the result is bool
  kChoose,   ///< where: the first operand is a condition and takes no part in the type
  kMasked,   ///< in place; the second operand is a mask
};

/// `form`, a letter an argument of the schema: t operand, S operand given as a Scalar, i operand that is also the result, o result (out=),
/// s and m parameters (m: may be missing), - what is not looked at, ? approximate="tanh" takes the kernel's variant of that name.
struct Row {
  const char* name;
  const char* op;
  const char* form;
  Kind kind = Kind::kCommon;
};

constexpr Row kRows[] = {
    {"add.out", "add", "ttso"},
    {"sub.out", "sub", "ttso"},
    {"mul.out", "mul", "tto"},
    {"div.out", "div", "tto", Kind::kFloat},
    {"maximum.out", "max", "tto"},
    {"minimum.out", "min", "tto"},
    {"eq.Tensor_out", "eq", "tto", Kind::kCompare},
    {"ne.Tensor_out", "ne", "tto", Kind::kCompare},
    {"lt.Tensor_out", "lt", "tto", Kind::kCompare},
    {"le.Tensor_out", "le", "tto", Kind::kCompare},
    {"gt.Tensor_out", "gt", "tto", Kind::kCompare},
    {"ge.Tensor_out", "ge", "tto", Kind::kCompare},
    {"eq.Scalar_out", "eq", "tSo", Kind::kCompare},
    {"ne.Scalar_out", "ne", "tSo", Kind::kCompare},
    {"lt.Scalar_out", "lt", "tSo", Kind::kCompare},
    {"le.Scalar_out", "le", "tSo", Kind::kCompare},
    {"gt.Scalar_out", "gt", "tSo", Kind::kCompare},
    {"ge.Scalar_out", "ge", "tSo", Kind::kCompare},
    {"logical_and.out", "and", "tto", Kind::kCompare},
    {"logical_or.out", "or", "tto", Kind::kCompare},
    {"logical_not.out", "not", "to", Kind::kCompare},
    {"bitwise_and.Tensor_out", "bit_and", "tto"},
    {"bitwise_or.Tensor_out", "bit_or", "tto"},
    {"bitwise_not.out", "bit_not", "to"},
    {"isnan", "isnan", "t", Kind::kCompare},
    {"isneginf.out", "isneginf", "to", Kind::kCompare},
    {"isposinf.out", "isposinf", "to", Kind::kCompare},
    {"sign.out", "sign", "to"},
    {"log1p.out", "log1p", "to", Kind::kFloat},
    {"expm1.out", "expm1", "to", Kind::kFloat},
    {"round.out", "round", "to"},
    {"leaky_relu.out", "leaky_relu", "tso"},
    {"leaky_relu_backward.grad_input", "leaky_relu_backward", "tts-o"},
    {"hardtanh", "clamp", "tss"},
    {"hardtanh_", "clamp", "iss"},
    {"hardtanh.out", "clamp", "tsso"},
    {"hardtanh_backward", "hardtanh_backward", "ttss"},
    {"hardtanh_backward.grad_input", "hardtanh_backward", "ttsso"},
    {"pow.Tensor_Scalar_out", "pow", "tSo"},
    {"pow.Tensor_Tensor_out", "pow", "tto"},
    {"neg.out", "neg", "to"},
    {"abs.out", "abs", "to"},
    {"relu", "relu", "t"},
    {"relu_", "relu", "i"},
    {"exp.out", "exp", "to", Kind::kFloat},
    {"log.out", "log", "to", Kind::kFloat},
    {"sqrt.out", "sqrt", "to", Kind::kFloat},
    {"rsqrt.out", "rsqrt", "to", Kind::kFloat},
    {"reciprocal.out", "reciprocal", "to", Kind::kFloat},
    {"sin.out", "sin", "to", Kind::kFloat},
    {"cos.out", "cos", "to", Kind::kFloat},
    {"tanh.out", "tanh", "to", Kind::kFloat},
    {"erf.out", "erf", "to", Kind::kFloat},
    {"sigmoid.out", "sigmoid", "to", Kind::kFloat},
    {"silu.out", "silu", "to", Kind::kFloat},
    {"gelu.out", "gelu", "t?o", Kind::kFloat},
    {"clamp.out", "clamp", "tmmo"},
    {"clamp_min.out", "clamp_min", "tso"},
    {"clamp_max.out", "clamp_max", "tso"},
    {"threshold_backward.grad_input", "threshold_backward", "ttso"},
    {"tanh_backward.grad_input", "tanh_backward", "tto"},
    {"sigmoid_backward.grad_input", "sigmoid_backward", "tto"},
    {"silu_backward.grad_input", "silu_backward", "tto"},
    {"gelu_backward.grad_input", "gelu_backward", "tt?o"},
    {"where.self", "where", "ttt", Kind::kChoose},
    {"where.self_out", "where", "ttto", Kind::kChoose},
    {"masked_fill_.Scalar", "masked", "its", Kind::kMasked},
    {"masked_fill_.Tensor", "masked_tensor", "itt", Kind::kMasked},
    {"addcmul.out", "addcmul", "tttso"},
    {"addcdiv.out", "addcdiv", "tttso"},
    {"lerp.Scalar_out", "lerp", "ttso"},
};

const Row& row_of(const c10::OperatorHandle& op) {
  static const auto* rows = [] {
    auto* out = new std::unordered_map<std::string, const Row*>;
    for (const Row& row : kRows) (*out)[row.name] = &row;
    return out;
  }();
  thread_local std::unordered_map<const c10::FunctionSchema*, const Row*> known;  // names are slow to put together
  const Row*& out = known[&op.schema()];
  if (out == nullptr) {
    const c10::OperatorName& name = op.operator_name();
    out = rows->at(name.name.substr(6) + (name.overload_name.empty() ? "" : "." + name.overload_name));
  }
  return *out;
}

/// The type that kernels compute in; undefined for types that they do not know.
ScalarType computing_type(ScalarType common) {
  switch (common) {
    case at::kFloat:
    case at::kHalf:
    case at::kBFloat16:
      return at::kFloat;
    case at::kDouble:
    case at::kLong:
      return common;
    case at::kInt:
    case at::kShort:
    case at::kChar:
    case at::kByte:
      return at::kInt;
    case at::kBool:
      return at::kByte;
    default:
      return ScalarType::Undefined;
  }
}

Argument value_of(const at::Scalar& scalar, ScalarType type) {
  switch (type) {
    case at::kFloat:
      return Argument::value(scalar.isBoolean() ? (scalar.to<bool>() ? 1.0F : 0.0F) : static_cast<float>(scalar.to<double>()));
    case at::kDouble:
      return Argument::value(scalar.to<double>());
    case at::kLong:
      return Argument::value(scalar.to<std::int64_t>());
    case at::kInt:
      return Argument::value(static_cast<std::int32_t>(scalar.to<std::int64_t>()));
    default:
      return Argument::value(static_cast<std::uint8_t>(scalar.to<std::int64_t>() != 0));
  }
}

bool is_integer_op(std::string_view op) {
  return op != "pow" && op != "isneginf" && op != "isposinf" && op != "sign" && op != "round" && op != "leaky_relu" &&
         op != "leaky_relu_backward" && op != "lerp" && op != "addcdiv" && op != "gelu_backward" && op != "silu_backward";
}

struct Call {
  std::vector<Tensor> operands;
  Tensor out;
  bool in_place = false;
  std::vector<at::Scalar> parameters;
  std::string op;
};

/// The powers that torch computes as roots (but of float16), which differ from others at -0 and -infinity.
void take_root(Call& call) {
  if (call.operands[0].scalar_type() == at::kHalf || at::isComplexType(call.operands[1].scalar_type())) return;
  const double exponent = call.operands[1].item<double>();
  if (exponent != 0.5 && exponent != -0.5) return;
  call.op = exponent > 0 ? "sqrt" : "rsqrt";
  call.operands.pop_back();
}

Call read(const Row& row, const torch::jit::Stack& stack, std::size_t count) {
  Call out;
  out.op = row.op;
  bool low = true;
  bool high = true;
  for (std::size_t i = 0; row.form[i] != '\0'; ++i) {
    const c10::IValue& value = stack[stack.size() - count + i];
    switch (row.form[i]) {
      case 't':
        out.operands.push_back(value.toTensor());
        break;
      case 'i':
        out.operands.push_back(value.toTensor());
        out.out = value.toTensor();
        out.in_place = true;
        break;
      case 'o':
        out.out = value.toTensor();
        break;
      case 'S':
        out.operands.push_back(at::scalar_to_tensor(value.toScalar()));
        out.operands.back().unsafeGetTensorImpl()->set_wrapped_number(true);
        break;
      case 's':
        out.parameters.push_back(value.toScalar());
        break;
      case 'm':
        (out.parameters.empty() && low && i == 1 ? low : high) = !value.isNone();
        if (!value.isNone()) out.parameters.push_back(value.toScalar());
        break;
      case '?':
        if (value.toStringRef() == "tanh") out.op = out.op == "gelu" ? "gelu_tanh" : "gelu_tanh_backward";
        break;
      default:
        break;
    }
  }
  if (!low) out.op += "_max";
  if (low && !high) out.op += "_min";
  if (std::string_view(row.form) == "tSo" && out.op == "pow" && at::isFloatingType(out.operands[0].scalar_type())) take_root(out);
  return out;
}

at::TensorIterator iterate(const Row& row, const Call& call) {
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(row.kind != Kind::kMasked).allow_cpu_scalars(true);
  config.add_output(call.out);
  for (const Tensor& operand : call.operands) config.add_const_input(operand);
  switch (row.kind) {
    case Kind::kFloat:
    case Kind::kCommon:
      config.promote_inputs_to_common_dtype(true).cast_common_dtype_to_outputs(true).enforce_safe_casting_to_output(true);
      config.promote_integer_inputs_to_float(row.kind == Kind::kFloat);
      break;
    case Kind::kCompare:
      config.promote_inputs_to_common_dtype(true);
      if (!call.out.defined()) config.declare_static_dtype(at::kBool);
      break;
    case Kind::kChoose:
      config.check_all_same_dtype(false);
      if (!call.out.defined()) config.declare_static_dtype(at::result_type(call.operands[1], call.operands[2]));
      break;
    case Kind::kMasked:
      config.check_all_same_dtype(false).resize_outputs(false);
      break;
  }
  return config.build();
}

/// False: nothing was done, the CPU has to.
bool run(const Row& row, Call& call) {
  for (const Tensor& operand : call.operands)
    if (operand.layout() != at::kStrided || operand.is_conj() || operand.is_neg() || kernel_type(operand.scalar_type()) == nullptr)
      return false;
  if (call.out.defined() &&
      (!call.out.is_xpu() || call.out.is_neg() || call.out.is_conj() || kernel_type(call.out.scalar_type()) == nullptr))
    return false;
  for (const at::Scalar& parameter : call.parameters)
    if (parameter.isComplex()) return false;
  at::TensorIterator iterator = iterate(row, call);
  const ScalarType common = row.kind == Kind::kChoose   ? iterator.dtype(0)
                            : row.kind == Kind::kMasked ? call.out.scalar_type()
                                                        : iterator.common_dtype();
  const ScalarType type = computing_type(common);
  if (call.op.rfind("bit_", 0) == 0) {
    if (at::isFloatingType(common)) return false;
    if (common == at::kBool && call.op == "bit_not") call.op = "not";
  }
  if (type == ScalarType::Undefined || (!at::isFloatingType(type) && !is_integer_op(call.op))) return false;
  if (type == at::kDouble && !unit_of(iterator.tensor(0)).device->facts().has_fp64) return false;
  // What a parameter does to the type of integers is torch's business.
  for (const at::Scalar& parameter : call.parameters)
    if (parameter.isFloatingPoint() && !at::isFloatingType(type)) return false;
  if (call.op.rfind("clamp", 0) == 0) {  // a bound that is NaN makes all results NaN
    for (const at::Scalar& bound : call.parameters)
      if (bound.isFloatingPoint() && std::isnan(bound.toDouble())) return false;
  }
  Grid grid;
  if (!make_grid(iterator, grid)) return false;
  const Tensor& out = iterator.tensor(0);
  if (iterator.numel() > 0) {
    std::string options = "-DOP=op_" + call.op + " -DN=" + std::to_string(call.operands.size()) + " -DX=" + kernel_type(type) +
                          " -DOUT=" + kernel_type(out.scalar_type()) + (at::isFloatingType(type) ? " -DREAL" : "") +
                          each_option(out, out.element_size());
    const std::int64_t each = each_item(out, out.element_size());
    bool linear = iterator.ndim() <= 1 && (iterator.ndim() == 0 || grid.strides[0][0] == static_cast<std::int64_t>(out.element_size()));
    std::vector<Argument> arguments{Argument::memory(iterator.data_ptr(0))};
    std::vector<std::int64_t> bytes{out.element_size()};
    for (int k = 1; k < iterator.ntensors(); ++k) {
      const Tensor& operand = iterator.tensor(k);
      const char letter = static_cast<char>('A' + k - 1);
      options += std::string(" -D") + letter + "=" + kernel_type(operand.scalar_type());
      if (iterator.is_cpu_scalar(k)) {
        options += std::string(" -DVALUE_") + letter;
        // In the operands' type, as torch has it: of 300 beside bytes 44 is left.
        arguments.push_back(value_of(type == at::kInt ? operand.to(common).item() : operand.item(), type));
        bytes.push_back(0);
        continue;
      }
      bytes.push_back(operand.element_size());
      arguments.push_back(Argument::memory(iterator.data_ptr(k)));
      linear = linear && (iterator.ndim() == 0 || grid.strides[k][0] == static_cast<std::int64_t>(operand.element_size()));
    }
    for (std::size_t i = 0; i < 2; ++i)
      arguments.push_back(value_of(i < call.parameters.size() ? call.parameters[i] : at::Scalar(0), type));
    ::ipexrun::xpu::Device& device = *unit_of(out).device;
    if (linear) {
      arguments.push_back(Argument::value(static_cast<std::int64_t>(iterator.numel())));
      launch_linear(out, device.kernel("elementwise", options, "linear"), arguments, iterator.numel(), each);
    } else if (const std::string lines = lines_kernel(out, grid, bytes); !lines.empty()) {
      launch_lines(out, "elementwise", options, lines, arguments, grid);
    } else {
      launch_strided(out, device.kernel("elementwise", options, "strided"), arguments, grid, each);
    }
  }
  if (!call.out.defined()) call.out = iterator.output();
  return true;
}

Tensor rsub_tensor(const Tensor& self, const Tensor& other, const at::Scalar& alpha) { return at::sub(other, self, alpha); }
Tensor rsub_scalar(const Tensor& self, const at::Scalar& other, const at::Scalar& alpha) {
  Tensor value = at::scalar_to_tensor(other);
  value.unsafeGetTensorImpl()->set_wrapped_number(true);
  return at::sub(value, self, alpha);
}

void elementwise(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const Row& row = row_of(op);
  const std::size_t count = op.schema().arguments().size();
  Call call = read(row, *stack, count);
  if (!attempt(op, [&] { return run(row, call); })) return run_on_cpu(op, keys, stack);
  stack->erase(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  stack->emplace_back(call.out);
}

}  // namespace

void register_elementwise() {
  static auto* aten = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::XPU, __FILE__, __LINE__);
  for (const Row& row : kRows) aten->impl(row.name, torch::CppFunction::makeFromBoxedFunction<&elementwise>());
  aten->impl("rsub.Tensor", &rsub_tensor);
  aten->impl("rsub.Scalar", &rsub_scalar);
}

}  // namespace ipexrun::preload::xpu
