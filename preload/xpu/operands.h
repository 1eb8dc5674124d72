// What operators with kernels of ours share: which tensors kernels take, arguments of kernels, and torch's boxed form around a function.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "preload/xpu/fallback.h"
#include "preload/xpu/grid.h"

namespace ipexrun::preload::xpu {

using Given = const c10::IValue*;            ///< the arguments of an operator's schema
using Results = std::vector<c10::IValue>;    ///< what it returns
using Function = bool (*)(Given, Results&);  ///< false: nothing was done, the CPU has to

/// Strided, on xpu, of its own values (no conjugate or negative bits).
inline bool plain(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_xpu() && tensor.layout() == at::kStrided && !tensor.is_conj() && !tensor.is_neg();
}
/// plain() and of a type that kernels compute with in float or double.
inline bool is_real(const at::Tensor& tensor) {
  if (!plain(tensor)) return false;
  const at::ScalarType type = tensor.scalar_type();
  if (type == at::kDouble) return unit_of(tensor).device->facts().has_fp64;
  return type == at::kFloat || type == at::kHalf || type == at::kBFloat16;
}
inline bool is_index(const at::Tensor& tensor) {
  return plain(tensor) && (tensor.scalar_type() == at::kLong || tensor.scalar_type() == at::kInt);
}

inline bool wide(const at::Tensor& tensor) { return tensor.scalar_type() == at::kDouble; }
inline Argument number(const at::Tensor& like, double value) {
  return wide(like) ? Argument::value(value) : Argument::value(static_cast<float>(value));
}
inline Argument flag(bool value) { return Argument::value(static_cast<std::int32_t>(value)); }
inline Argument count(std::int64_t value) { return Argument::value(value); }
inline Argument read(const at::Tensor& tensor) { return Argument::memory(tensor.const_data_ptr()); }
inline Argument write(const at::Tensor& tensor) { return Argument::memory(tensor.mutable_data_ptr()); }

/// -DT: the type of elements, -DX: the type of sums (float or double).
inline std::string real_options(const at::Tensor& tensor) {
  return std::string("-DREAL -DT=") + kernel_type(tensor.scalar_type()) + " -DX=" + (wide(tensor) ? "double" : "float");
}
/// " -DINDEX=": what positions of so many elements are counted with. Divisions of 64 bits are slow.
inline const char* index_option(std::int64_t elements) {
  return elements < std::numeric_limits<std::int32_t>::max() ? " -DINDEX=uint" : " -DINDEX=ulong";
}

/// Work items for a row of n elements, and the option that tells kernels of rows so. Measured on an H200: 64 are the fastest up to 768, 256
/// at 4096.
inline std::int64_t lanes_for(const at::Tensor& on, std::int64_t n) {
  const auto& facts = unit_of(on).device->facts();
  return !facts.lanes || n < 1024 || facts.max_work_group < 256 ? 64 : n < 3072 ? 128 : 256;
}
inline const char* lanes_option(const at::Tensor& on, std::int64_t n) {
  const std::int64_t lanes = lanes_for(on, n);
  return lanes == 64 ? "" : lanes == 128 ? " -DLANES=128" : " -DLANES=256";
}

/// Whether one work item takes a whole row in kernels of rows of real numbers (VECTORS of rows.cl).
inline bool one_item_a_row(const at::Tensor& on) { return !unit_of(on).device->facts().lanes; }

inline at::Tensor optional_tensor(const c10::IValue& value) { return value.isNone() ? at::Tensor() : value.toTensor(); }
inline at::Tensor packed(const at::Tensor& tensor) { return tensor.defined() ? tensor.contiguous() : tensor; }

/// A function of ours behind torch's boxed form.
template <Function function>
void boxed(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const std::size_t arguments = op.schema().arguments().size();
  Results results;
  Given given = &*(stack->end() - static_cast<std::ptrdiff_t>(arguments));
  if (!attempt(op, [&] { return function(given, results); })) return run_on_cpu(op, keys, stack);
  stack->erase(stack->end() - static_cast<std::ptrdiff_t>(arguments), stack->end());
  for (c10::IValue& value : results) stack->push_back(std::move(value));
}
template <Function function>
torch::CppFunction as_kernel() {
  return torch::CppFunction::makeFromBoxedFunction<&boxed<function>>();
}

}  // namespace ipexrun::preload::xpu
