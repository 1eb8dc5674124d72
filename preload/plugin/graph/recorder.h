// A graph out of what a piece of code calls: the operators below those that are made of others, in order, over the tensors it was given.
//
// What it recorded holds for every call whose tensors have the same dtypes, sizes and strides: numbers that depend on these are constants
// of the graph, and code whose course depends on the contents of tensors is refused.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/util/FunctionRef.h>

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "preload/plugin/graph/ir.h"

namespace ipexrun::preload::graph {

/// Makes recording possible in this process; false when somebody else has the key of torch's dispatcher that it needs. Called once.
bool register_recorder();

/// An operator that a recording can hold, as far as its name and schema tell.
bool recordable(const c10::OperatorHandle& op);

/// Writes into its first argument, and does the same as another operator that does not.
std::optional<c10::OperatorHandle> without_writing(const c10::OperatorHandle& op);

/// One recording, by one thread.
class Recorder {
 public:
  /// No two of them the same object.
  void input(const at::Tensor& tensor, bool weight);
  /// Runs the code once and gives the graph. Its results are tensors that it made, none sharing memory with another or with an input, or
  /// numbers. Throws what the code throws; what cannot be recorded as std::invalid_argument.
  Graph record(c10::function_ref<torch::jit::Stack()> code);

  /// For the dispatcher alone.
  void called(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

 private:
  struct Known {
    Value value = kNone;
    bool constant = false;                              ///< made of nothing that was given
    c10::weak_intrusive_ptr<c10::TensorImpl> object;    ///< keeps its address from being used again
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  ///< likewise
  };

  void check(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments) const;
  void note(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments, const c10::IValue* results);
  Argument argument_of(const c10::IValue& value);
  Argument tensor_argument(const at::Tensor& tensor, bool as_number);
  Value result_of(const at::Tensor& tensor, bool constant);
  void keep(const at::Tensor& tensor, Value value, bool constant);
  const Known* known(const at::Tensor& tensor) const;
  bool all_constant(const std::vector<c10::IValue>& arguments) const;
  /// Places of the nodes by which `written` is a view of the others that share its memory and are still there, the nearest first.
  std::vector<std::size_t> views_of_others(const at::Tensor& written) const;
  void write_through(const std::vector<std::size_t>& views, Value written, bool constant);
  Argument output_of(const c10::IValue& result, std::unordered_set<const c10::StorageImpl*>* taken) const;

  Graph graph_;
  std::unordered_map<const c10::TensorImpl*, Known> known_;
  std::unordered_set<const c10::StorageImpl*> given_;
  std::string problem_;
};

}  // namespace ipexrun::preload::graph
