// The commonest elementwise operators on plain tensors: of one real type, of the same sizes and strides, without holes, or one tensor and a
// number. Such a call is checked, its result made and its kernel launched here, without torch's iterator, boxes or words; every other one
// goes torch's way, to the table of elementwise.cpp.
#include <c10/util/string_view.h>

#include <ATen/ops/add_compositeexplicitautogradnonfunctional_dispatch.h>
#include <ATen/ops/div_compositeexplicitautogradnonfunctional_dispatch.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exp_compositeexplicitautogradnonfunctional_dispatch.h>
#include <ATen/ops/mul_compositeexplicitautogradnonfunctional_dispatch.h>
#include <ATen/ops/neg_compositeexplicitautogradnonfunctional_dispatch.h>
#include <ATen/ops/sigmoid_compositeexplicitautogradnonfunctional_dispatch.h>
#include <ATen/ops/silu_compositeexplicitautogradnonfunctional_dispatch.h>
#include <ATen/ops/sqrt_compositeexplicitautogradnonfunctional_dispatch.h>
#include <ATen/ops/sub_compositeexplicitautogradnonfunctional_dispatch.h>
#include <ATen/ops/tanh_compositeexplicitautogradnonfunctional_dispatch.h>

#include <array>
#include <optional>
#include <unordered_map>

#include "preload/xpu/operands.h"
#include "preload/xpu/operators.h"

namespace ipexrun::preload::xpu {
namespace {

using at::Tensor;
namespace rest = at::compositeexplicitautogradnonfunctional;

/// Names of kernels (elementwise.cl), numbered for the cache.
enum Op { kAdd, kSub, kMul, kDiv, kExp, kNeg, kSigmoid, kSilu, kSqrt, kTanh };
constexpr std::array<const char*, 10> kNames{"add", "sub", "mul", "div", "exp", "neg", "sigmoid", "silu", "sqrt", "tanh"};

/// The kernel for an operator on operands of one type, the second one perhaps a number. Threads have caches of their own.
Kernel& kernel_for(Op op, const Tensor& on, int operands, bool number) {
  thread_local std::unordered_map<std::uint64_t, Kernel*> known;
  const std::uint64_t key = static_cast<std::uint64_t>(op) | static_cast<std::uint64_t>(on.scalar_type()) << 8 |
                            static_cast<std::uint64_t>(number) << 16 | static_cast<std::uint64_t>(on.device().index()) << 24;
  Kernel*& out = known[key];
  if (out == nullptr) {
    const std::string type = kernel_type(on.scalar_type());
    // As elementwise.cpp writes it: the same program.
    std::string options = std::string("-DOP=op_") + kNames[op] + " -DN=" + std::to_string(operands) +
                          " -DX=" + (wide(on) ? "double" : "float") + " -DOUT=" + type + " -DREAL" + each_option(on, on.element_size()) +
                          " -DA=" + type;
    if (operands > 1) options += " -DB=" + type;
    if (number) options = options.substr(0, options.rfind(" -DB=")) + " -DB=double -DVALUE_B";
    out = &unit_of(on).device->kernel("elementwise", options, "linear");
  }
  return *out;
}

bool simple(const Tensor& tensor) { return is_real(tensor) && tensor.is_non_overlapping_and_dense(); }

/// The second operand of a call: a tensor of the same layout, or a number.
std::optional<double> number_in(const Tensor& other) {
  if (!other.device().is_cpu() || other.dim() != 0 || !other.unsafeGetTensorImpl()->is_wrapped_number()) return std::nullopt;
  if (other.scalar_type() == at::kDouble) return *other.const_data_ptr<double>();
  if (other.scalar_type() == at::kLong) return static_cast<double>(*other.const_data_ptr<std::int64_t>());
  return std::nullopt;
}
bool alike(const Tensor& a, const Tensor& b) {
  return plain(b) && a.scalar_type() == b.scalar_type() && a.device() == b.device() && a.sizes() == b.sizes() && a.strides() == b.strides();
}
/// Elements of the two are the same ones, or none is.
bool apart_or_same(const Tensor& a, const Tensor& b) { return !a.is_alias_of(b) || a.const_data_ptr() == b.const_data_ptr(); }

void launch(Op op, const Tensor& out, const Tensor& a, const Tensor* b, std::optional<double> number_b, double s) {
  const std::int64_t n = a.numel();
  if (n == 0) return;
  std::vector<Argument> arguments;
  arguments.reserve(6);
  arguments.push_back(write(out));
  arguments.push_back(read(a));
  if (number_b.has_value())
    arguments.push_back(number(a, *number_b));
  else if (b != nullptr)
    arguments.push_back(read(*b));
  arguments.push_back(number(a, s));
  arguments.push_back(number(a, 0));
  arguments.push_back(count(n));
  launch_linear(a, kernel_for(op, a, b != nullptr ? 2 : 1, number_b.has_value()), arguments, n, each_item(a, a.element_size()));
}

/// False: torch's way. Without `out` a tensor is made.
bool binary(Op op, const Tensor& a, const Tensor& b, const at::Scalar& alpha, Tensor& out) {
  if (!simple(a) || alpha.isComplex()) return false;
  const std::optional<double> value = number_in(b);
  if (!value.has_value() && (!alike(a, b) || (out.defined() && !apart_or_same(a, b)))) return false;
  try {
    (void)kernel_for(op, a, 2, value.has_value());
  } catch (const ::ipexrun::xpu::DeviceError&) {
    return false;
  }
  if (!out.defined()) out = at::empty_like(a);
  launch(op, out, a, &b, value, alpha.to<double>());
  return true;
}
bool unary(Op op, const Tensor& a, Tensor& out) {
  if (!simple(a)) return false;
  try {
    (void)kernel_for(op, a, 1, false);
  } catch (const ::ipexrun::xpu::DeviceError&) {
    return false;
  }
  if (!out.defined()) out = at::empty_like(a);
  launch(op, out, a, nullptr, std::nullopt, 0);
  return true;
}

Tensor add(const Tensor& a, const Tensor& b, const at::Scalar& alpha) {
  Tensor out;
  return binary(kAdd, a, b, alpha, out) ? out : rest::add(a, b, alpha);
}
Tensor& add_(Tensor& a, const Tensor& b, const at::Scalar& alpha) { return binary(kAdd, a, b, alpha, a) ? a : rest::add_(a, b, alpha); }
Tensor sub(const Tensor& a, const Tensor& b, const at::Scalar& alpha) {
  Tensor out;
  return binary(kSub, a, b, alpha, out) ? out : rest::sub(a, b, alpha);
}
Tensor& sub_(Tensor& a, const Tensor& b, const at::Scalar& alpha) { return binary(kSub, a, b, alpha, a) ? a : rest::sub_(a, b, alpha); }
template <Op op, Tensor (*other)(const Tensor&, const Tensor&)>
Tensor two(const Tensor& a, const Tensor& b) {
  Tensor out;
  return binary(op, a, b, 0, out) ? out : other(a, b);
}
template <Op op, Tensor& (*other)(Tensor&, const Tensor&)>
Tensor& two_(Tensor& a, const Tensor& b) {
  return binary(op, a, b, 0, a) ? a : other(a, b);
}
template <Op op, Tensor (*other)(const Tensor&)>
Tensor one(const Tensor& a) {
  Tensor out;
  return unary(op, a, out) ? out : other(a);
}

}  // namespace

void register_fast() {
  static auto* aten = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::XPU, __FILE__, __LINE__);
  aten->impl("add.Tensor", &add);
  aten->impl("add_.Tensor", &add_);
  aten->impl("sub.Tensor", &sub);
  aten->impl("sub_.Tensor", &sub_);
  aten->impl("mul.Tensor", &two<kMul, &rest::mul>);
  aten->impl("mul_.Tensor", &two_<kMul, &rest::mul_>);
  aten->impl("div.Tensor", &two<kDiv, &rest::div>);
  aten->impl("div_.Tensor", &two_<kDiv, &rest::div_>);
  aten->impl("exp", &one<kExp, &rest::exp>);
  aten->impl("neg", &one<kNeg, &rest::neg>);
  aten->impl("sigmoid", &one<kSigmoid, &rest::sigmoid>);
  aten->impl("silu", &one<kSilu, &rest::silu>);
  aten->impl("sqrt", &one<kSqrt, &rest::sqrt>);
  aten->impl("tanh", &one<kTanh, &rest::tanh>);
}

}  // namespace ipexrun::preload::xpu
