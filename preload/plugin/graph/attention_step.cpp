#include "preload/plugin/graph/attention_step.h"

#include <ATen/ops/_softmax.h>
#include <ATen/ops/add.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>

#include <algorithm>

#include "preload/plugin/adapters/attention_call.h"
#include "preload/plugin/answer.h"
#include "preload/plugin/scratch.h"

namespace ipexrun::preload::graph {
namespace {

class AttentionStep final : public Step {
 public:
  explicit AttentionStep(const Node& node)
      : stock_(make_operator_step(node)), arguments_(node.arguments), output_(node.outputs[0]), form_(node.index) {}

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
    if (!outputs.defined() || (call.wants_logsumexp && hides_a_row(outputs.more[0]))) return false;
    values[static_cast<std::size_t>(output_)] = std::move(outputs.first);
    return true;
  }

  /// As [batch, heads, rows, depth], in the order that readers count on.
  [[nodiscard]] at::Tensor placed(const at::Tensor& q) const {
    if (!is(kAttentionTokensFirst)) return scratch_empty(q.sizes(), q.scalar_type());
    return scratch_empty({q.size(0), q.size(2), q.size(1), q.size(3)}, q.scalar_type()).transpose(1, 2);
  }

  /// The kernel gives 0 for such rows, with a logsumexp of 0; softmax gives NaN.
  static bool hides_a_row(const at::Tensor& logsumexp) {
    const auto* first = static_cast<const float*>(logsumexp.const_data_ptr());  // without gaps, in whatever order
    return std::find(first, first + logsumexp.numel(), 0.0F) != first + logsumexp.numel();
  }

  [[nodiscard]] at::Tensor written_out(const Values& values) const {
    const at::Tensor q = argument(0, values).toTensor();
    at::Tensor scores = at::matmul(q, argument(1, values).toTensor().transpose(2, 3));
    scores = at::mul(scores, argument(6, values).toScalar());
    if (const auto mask = argument(5, values).toOptional<at::Tensor>()) scores = at::add(scores, *mask);
    const at::Tensor result = at::matmul(at::_softmax(scores, -1, false).to(q.scalar_type()), argument(2, values).toTensor());
    return is(kAttentionTokensFirst) ? result.transpose(1, 2).contiguous().transpose(1, 2) : result.contiguous();
  }

  std::unique_ptr<Step> stock_;
  std::vector<Argument> arguments_;
  Value output_;
  std::int64_t form_;
};

}  // namespace

std::unique_ptr<Step> make_attention_step(const Node& node) { return std::make_unique<AttentionStep>(node); }

}  // namespace ipexrun::preload::graph
