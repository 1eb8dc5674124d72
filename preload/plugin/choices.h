// Choices among rounded values: which rows a program goes on with (the experts of a token, the best of some queries) may turn out otherwise
// by one rounding, and then everything after them is another computation.
//
// Shadows (shadows.h) follow the choices of the user's run, so the results of a drift check do not show what another choice would have
// done. Here choices are kept account of instead. So are values that move by steps alone (signs, whole numbers as floats, masks as numbers:
// codes of binary and spiking networks, quantizers without a codebook): one of them turns so seldom that a check may meet none, and a layer
// that reads it then works on something else. Used by one thread, like the shadows.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/FunctionRef.h>
#include <c10/util/intrusive_ptr.h>

#include <cstddef>
#include <unordered_map>
#include <vector>

namespace ipexrun::preload {

class Choices {
 public:
  /// Before each op; `rounded`: whether a candidate rounded values of this tensor.
  void before(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments, c10::function_ref<bool(const at::Tensor&)> rounded);
  /// After the same op. `rounded`: values that a candidate rounded were among its arguments.
  void after(const c10::OperatorHandle& op, const c10::IValue* results, std::size_t count, bool rounded);
  /// Whether positions that were found among rounded values (topk, argmax, sort), places where a comparison of such values holds, or whole
  /// numbers that they were made (a cast, the places of a pool) as indices, were used since forget(), or values that move by steps went
  /// into a product: that of the op at hand, too.
  [[nodiscard]] bool were_used() const { return used_ || met_.into_product; }
  /// Whether one of them is a choice, or was made of what a choice took (the code of a codebook, the rows of an expert, the embedding of a
  /// token).
  [[nodiscard]] bool made(const std::vector<c10::IValue>& arguments) const;
  void forget();

 private:
  enum class Kind { kPositions, kMask, kNumbers, kTaken, kSteps };
  struct Choice {
    c10::weak_intrusive_ptr<c10::StorageImpl> of;  ///< keeps the address from being reused, not the memory
    Kind kind;
  };
  struct Met {
    bool mask = false;
    bool numbers = false;
    bool taken = false;
    bool used = false;  ///< by this op
    bool steps = false;
    bool continuous = false;    ///< rounded values that move by more than steps
    bool into_product = false;  ///< steps are multiplied by a layer's weights, or by each other
  };
  void note(const c10::IValue& result, Kind kind);
  void note_steps(const c10::IValue& result, double jump, bool shadowed);

  std::unordered_map<const c10::StorageImpl*, Choice> choices_;
  Met met_;  ///< among the arguments of the op at hand
  bool used_ = false;
};

}  // namespace ipexrun::preload
