// Choices among rounded values: which rows a program goes on with (the experts of a token, the best of some queries) may turn out otherwise
// by one rounding, and then everything after them is another computation.
//
// Shadows (shadows.h) follow the choices of the user's run, so the results of a drift check do not show what another choice would have
// done. Here choices are kept account of instead. Used by one thread, like the shadows.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <cstddef>
#include <unordered_map>
#include <vector>

namespace ipexrun::preload {

class Choices {
 public:
  /// After each op. `rounded`: values that a candidate rounded were among its arguments.
  void after(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments, const c10::IValue* results, std::size_t count,
             bool rounded);
  /// Whether positions that were found among rounded values (topk, argmax, sort), places where a comparison of such values holds, or whole
  /// numbers that they were made (a cast, the places of a pool) as indices, were used since forget().
  [[nodiscard]] bool were_used() const { return used_; }
  /// Whether one of them is a choice, or was made of what a choice took (the code of a codebook, the rows of an expert, the embedding of a
  /// token).
  [[nodiscard]] bool made(const std::vector<c10::IValue>& arguments) const;
  void forget();

 private:
  enum class Kind { kPositions, kMask, kNumbers, kTaken };
  struct Choice {
    c10::weak_intrusive_ptr<c10::StorageImpl> of;  ///< keeps the address from being reused, not the memory
    Kind kind;
  };
  struct Met {
    bool mask = false;
    bool numbers = false;
    bool taken = false;
  };
  /// What is among the arguments; notes whether it is used.
  Met meet(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments);
  void note(const c10::IValue& result, Kind kind);

  std::unordered_map<const c10::StorageImpl*, Choice> choices_;
  bool used_ = false;
};

}  // namespace ipexrun::preload
