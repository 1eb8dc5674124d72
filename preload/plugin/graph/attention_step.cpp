#include "preload/plugin/graph/attention_step.h"

#include <ATen/ops/_softmax.h>
#include <ATen/ops/add.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/masked_fill.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>

#include <algorithm>
#include <cmath>

#include "preload/plugin/adapters/attention_call.h"
#include "preload/plugin/answer.h"
#include "preload/plugin/graph/match.h"
#include "preload/plugin/scratch.h"

namespace ipexrun::preload::graph {
namespace {

class AttentionStep final : public Step {
 public:
  explicit AttentionStep(const Node& node) : arguments_(node.arguments), output_(node.outputs[0]), form_(node.index) {
    if (!is(kAttentionWritten)) {
      stock_ = make_operator_step(node);
      return;
    }
    for (std::size_t i = kOfOperator; i < arguments_.size(); i += 3) {
      const c10::IValue& fill = arguments_[i + 1].constant;
      if (fill.isNone()) continue;
      fills_ = true;
      counts_low_rows_ = arguments_.size() > kOfOperator + 3 || fill.toDouble() > kHidesAnyScore;
    }
  }

  void run(Values& values) const override {
    TierState* state = tier();
    if (state != nullptr && allowed_here() && run_own(*state, values)) return;
    if (is(kAttentionWritten)) {
      values[static_cast<std::size_t>(output_)] = written_out(values);
    } else {
      stock_->run(values);
    }
  }

 private:
  [[nodiscard]] bool is(AttentionForm form) const { return (form_ & form) != 0; }
  [[nodiscard]] c10::IValue argument(std::size_t i, const Values& values) const { return resolve(arguments_[i], values, nullptr); }

  [[nodiscard]] at::Tensor operand(std::size_t i, const Values& values) const {
    at::Tensor tensor = argument(i, values).toTensor();
    const bool dense = tensor.dim() != 4 || tensor.size(3) == 1 || tensor.stride(3) == 1;
    return dense || !is(kAttentionWritten) ? tensor : tensor.contiguous();  // K that lies as [depth, keys]
  }

  bool run_own(TierState& state, Values& values) const {
    const ForkGate::Passage passage(state.fork_gate);
    if (!passage) return false;
    const at::Tensor q = operand(0, values);
    const at::Tensor k = operand(1, values);
    const at::Tensor v = operand(2, values);
    const c10::IValue scale = argument(6, values);
    const auto mask = argument(5, values).toOptional<at::Tensor>();
    AttentionCall call;
    // Rows of which nothing is visible show there.
    call.wants_logsumexp = is(kAttentionWritten) && mask.has_value();
    if (!call.describe(q, k, v, argument(3, values).toScalar().toDouble(), argument(4, values).toBool(), mask,
                       scale.isNone() ? std::nullopt : std::optional(scale.toScalar().toDouble()))) {
      return false;
    }
    const int candidate = call.best(is(kAttentionBf16), state.options.isa);
    if (candidate == kStock) return false;
    if (is(kAttentionWritten)) call.out = placed(q);
    Outputs outputs = call.run(candidate, {}, state.options.isa);
    if (!outputs.defined() || (call.wants_logsumexp && shows_what_is_hidden(outputs.more[0]))) return false;
    values[static_cast<std::size_t>(output_)] = std::move(outputs.first);
    return true;
  }

  /// As [batch, heads, rows, depth], in the order that readers count on.
  [[nodiscard]] at::Tensor placed(const at::Tensor& q) const {
    if (!is(kAttentionTokensFirst)) return scratch_empty(q.sizes(), q.scalar_type());
    return scratch_empty({q.size(0), q.size(2), q.size(1), q.size(3)}, q.scalar_type()).transpose(1, 2);
  }

  /// The kernel gives 0 for rows of which -inf hides everything, with a logsumexp of 0; softmax gives NaN. What a number is filled in for
  /// is gone, whatever it was, while the kernel adds: NaN and infinity stay, and so does what was there in rows that are hidden as a whole.
  [[nodiscard]] bool shows_what_is_hidden(const at::Tensor& logsumexp) const {
    const auto* first = static_cast<const float*>(logsumexp.const_data_ptr());  // without gaps, in whatever order
    return std::any_of(first, first + logsumexp.numel(), [this](float one) {
      return one == 0.0F || (fills_ && (!std::isfinite(one) || (counts_low_rows_ && one < kHiddenAsAWhole)));
    });
  }

  [[nodiscard]] at::Tensor written_out(const Values& values) const {
    const at::Tensor q = argument(0, values).toTensor();
    const auto heads = [&](std::size_t i) {  // one for several of q's, where copies that only repeated it are left out
      const at::Tensor one = argument(i, values).toTensor();
      return one.size(1) == q.size(1) ? one : one.repeat_interleave(q.size(1) / one.size(1), 1);
    };
    at::Tensor scores = at::matmul(q, heads(1).transpose(2, 3));
    scores = at::mul(scores, argument(6, values).toScalar());
    for (std::size_t i = kOfOperator; i < arguments_.size(); i += 3) {
      const at::Tensor mask = argument(i, values).toTensor();
      const c10::IValue& fill = arguments_[i + 1].constant;
      scores = fill.isNone() ? at::add(scores, mask)
                             : at::masked_fill(scores, arguments_[i + 2].constant.toBool() ? at::logical_not(mask) : mask, fill.toScalar());
    }
    const at::Tensor result = at::matmul(at::_softmax(scores, -1, false).to(q.scalar_type()), heads(2));
    return is(kAttentionTokensFirst) ? result.transpose(1, 2).contiguous().transpose(1, 2) : result.contiguous();
  }

  static constexpr std::size_t kOfOperator = 7;    ///< arguments; behind them masks, as the program has them
  static constexpr double kHidesAnyScore = -1e30;  ///< added to it scores leave no trace
  static constexpr float kHiddenAsAWhole = -5e8F;  ///< a logsumexp: no score that a program uses comes near
  std::unique_ptr<Step> stock_;                    ///< none where the program wrote it out
  std::vector<Argument> arguments_;
  Value output_;
  std::int64_t form_;
  bool fills_ = false;            ///< a mask replaces scores by a number
  bool counts_low_rows_ = false;  ///< and what such a row gives depends on more than that number
};

}  // namespace

std::unique_ptr<Step> make_attention_step(const Node& node) { return std::make_unique<AttentionStep>(node); }

bool is_mask(const Node& node, Value value) {
  constexpr std::ptrdiff_t kMask = 5;
  return std::any_of(node.arguments.begin() + kMask, node.arguments.end(), [&](const Argument& one) { return value_of(one) == value; });
}

}  // namespace ipexrun::preload::graph
