#include "preload/plugin/graph/weights_step.h"

#include <atomic>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "preload/plugin/adapters/digest.h"
#include "preload/plugin/answer.h"
#include "preload/plugin/candidate_kernels.h"
#include "preload/plugin/graph/linear_step.h"
#include "preload/plugin/op_call.h"
#include "preload/plugin/tier.h"
#include "preload/plugin/weight_use.h"

namespace ipexrun::preload::graph {
namespace {

constexpr int kSlot = 1;             ///< of the packs of weights that are known under a key of our own
constexpr std::int64_t kMark = -17;  ///< in that key: no view has such strides

/// Stands in the table for one weight as it was when the result was made.
class Seen : public Pack {
 public:
  [[nodiscard]] std::size_t size_bytes() const noexcept override { return 1; }
};

/// The pack of the first weight: the result, and what stands for the others.
class Made final : public Pack {
 public:
  Made(at::Tensor result, std::vector<std::shared_ptr<const Pack>> others) : result_(std::move(result)), others_(std::move(others)) {}
  [[nodiscard]] std::size_t size_bytes() const noexcept override { return result_.nbytes(); }
  [[nodiscard]] const at::Tensor& result() const { return result_; }
  [[nodiscard]] const std::vector<std::shared_ptr<const Pack>>& others() const { return others_; }

 private:
  at::Tensor result_;
  std::vector<std::shared_ptr<const Pack>> others_;
};

/// By which programs that compute the same of the same weights find each other's results.
std::int64_t number_of(const Graph& graph) {
  static std::atomic<std::int64_t> apart{0};
  std::string text;
  bool known = true;
  for (const Value input : graph.inputs) {
    for (const std::int64_t size : graph.facts[static_cast<std::size_t>(input)].sizes) text += std::to_string(size) + ',';
    text += ';';
  }
  for (const Node& node : graph.nodes) {
    text += toString(node.op->operator_name()) + ' ' + node.own_name + ' ' + std::to_string(node.index) + ' ';
    for (const Argument& argument : node.arguments) known = known && append_text(argument, &text);
    for (const Value output : node.outputs) text += std::to_string(output) + ',';
  }
  known = known && !graph.outputs.empty() && append_text(graph.outputs[0], &text);
  return known ? static_cast<std::int64_t>(std::hash<std::string>{}(text) >> 1) : -++apart;
}

bool equal_bytes(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes() || a.strides() != b.strides()) return false;
  if (!a.is_non_overlapping_and_dense()) return false;
  return std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

class WeightsStep final : public Step {
 public:
  explicit WeightsStep(const Node& node) : program_(*node.inside), to_(node.outputs[0]), number_(number_of(*node.inside)) {
    for (const Argument& argument : node.arguments) weights_.push_back(argument.value);
  }

  void run(Values& values) const override { values[static_cast<std::size_t>(to_)] = result(values); }

 private:
  [[nodiscard]] at::Tensor result(const Values& values) const {
    TierState* state = tier();
    if (state == nullptr || !allowed_here()) return compute(values);
    const ForkGate::Passage passage(state->fork_gate);
    if (!passage) return compute(values);
    std::vector<WeightState> known = look_up(*state, values, nullptr);
    if (const Made* made = valid(known)) return made->result();
    const std::lock_guard lock(making_);  // one thread makes it; the others find it
    std::vector<WeightUse> uses;
    known = look_up(*state, values, &uses);
    if (const Made* made = valid(known)) return made->result();
    return make(*state, values, known, uses);
  }

  [[nodiscard]] at::Tensor make(TierState& state, const Values& values, const std::vector<WeightState>& known,
                                const std::vector<WeightUse>& uses) const {
    bool watched = !state.weights.read_only();
    for (std::size_t i = 0; i < known.size() && watched; ++i) {
      watched = known[i].weight != nullptr && state.weights.may_pack(*known[i].weight);
      if (watched) state.weights.pin_bytes(*known[i].weight, uses[i]);
    }
    at::Tensor result = compute(values);
    // Where nothing tells whether weights change: what was packed from equal numbers stays.
    if (last_.defined() && equal_bytes(last_, result)) result = last_;
    std::vector<std::shared_ptr<const Pack>> others;
    for (std::size_t i = 1; i < known.size() && watched; ++i) {
      others.push_back(std::make_shared<const Seen>());
      watched = state.weights.put(*known[i].weight, kSlot, others.back(), true);
    }
    watched = watched && state.weights.put(*known[0].weight, kSlot, std::make_shared<const Made>(result, std::move(others)), true);
    last_ = watched ? at::Tensor() : result;
    return result;
  }

  [[nodiscard]] at::Tensor compute(const Values& values) const {
    Values inputs;
    for (const Value weight : weights_) inputs.push_back(values[static_cast<std::size_t>(weight)]);
    return program_.run(std::move(inputs)).at(0).toTensor();
  }

  /// What the table knows of each weight, all of its bytes taken as one row.
  [[nodiscard]] std::vector<WeightState> look_up(TierState& state, const Values& values, std::vector<WeightUse>* uses) const {
    std::vector<WeightState> known;
    known.reserve(weights_.size());
    for (const Value weight : weights_) {
      const at::Tensor& tensor = tensor_of(values, weight);
      WeightUse use = weight_use_of(tensor);
      use.key.sizes = {tensor.numel(), number_};
      use.key.strides = {kMark, strides_of(tensor)};
      known.push_back(state.weights.use(
          use, [&] { return liveness_of(tensor); }, true));
      if (uses != nullptr) uses->push_back(use);
    }
    return known;
  }

  /// Null where a weight is another one than it was.
  static const Made* valid(const std::vector<WeightState>& known) {
    if (known[0].weight == nullptr) return nullptr;
    const auto* made = static_cast<const Made*>(known[0].packs[kSlot].get());  // which `known` keeps
    if (made == nullptr || made->others().size() + 1 != known.size()) return nullptr;
    for (std::size_t i = 1; i < known.size(); ++i) {
      if (known[i].weight == nullptr || known[i].packs[kSlot] != made->others()[i - 1]) return nullptr;
    }
    return made;
  }

  static std::int64_t strides_of(const at::Tensor& tensor) {
    std::uint64_t digest = 0;
    for (const std::int64_t stride : tensor.strides()) digest = digest_of({static_cast<std::int64_t>(digest), stride});
    return static_cast<std::int64_t>(digest >> 1);
  }

  Program program_;
  std::vector<Value> weights_;
  Value to_;
  std::int64_t number_;
  mutable std::mutex making_;
  mutable at::Tensor last_;  ///< guarded by making_
};

}  // namespace

std::unique_ptr<Step> make_weights_step(const Node& node) { return std::make_unique<WeightsStep>(node); }

}  // namespace ipexrun::preload::graph
