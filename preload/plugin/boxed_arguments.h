// What an operator does with its arguments, seen from its schema and the boxed values of a call. Any thread.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace ipexrun::preload {

/// Calls visit(tensor) for each defined tensor of an argument, in lists as well.
template <typename Visit>
void for_each_tensor(const c10::IValue& value, Visit visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) {
      if (tensor.defined()) visit(tensor);
    }
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) for_each_tensor(element, visit);
  }
}

/// The argument with each tensor replaced by what `replace` gives.
template <typename Replace>
c10::IValue with_tensors(const c10::IValue& value, Replace replace) {
  if (value.isTensor()) return value.toTensor().defined() ? c10::IValue(replace(value.toTensor())) : value;
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(tensor.defined() ? replace(tensor) : tensor);
    return list;
  }
  if (value.isList()) {
    c10::List<c10::IValue> list = value.toList().copy();
    for (std::size_t i = 0; i < list.size(); ++i) {
      const c10::IValue element = list.get(i);
      if (element.isTensor() && element.toTensor().defined()) list.set(i, replace(element.toTensor()));
    }
    return list;
  }
  return value;
}

/// Whether a call with these arguments writes the i-th. native_batch_norm and batch_norm_update_stats write their running statistics
/// without a word in their schemas, and norms that have such words write none while they do not train.
inline bool writes(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& arguments, std::size_t i) {
  const c10::Argument& argument = schema.arguments()[i];
  if (!argument.name().starts_with("running_")) return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
  for (const char* name : {"training", "train"}) {
    if (const auto at = schema.argumentIndexWithName(name)) return arguments[static_cast<std::size_t>(*at)].toBool();
  }
  return true;
}

/// Its results differ from call to call.
inline bool is_drawn_at_random(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments) {
  if (op.hasTag(at::Tag::nondeterministic_seeded)) {
    const auto dropout = op.schema().argumentIndexWithName("dropout_p");  // attention is tagged, and draws nothing without it
    return !dropout || arguments[static_cast<std::size_t>(*dropout)].toDouble() != 0;
  }
  return std::any_of(arguments.begin(), arguments.end(), [](const c10::IValue& value) { return value.isGenerator(); });
}

}  // namespace ipexrun::preload
