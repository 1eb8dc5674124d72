#include "preload/plugin/graph/part_step.h"

#include <torch/csrc/inductor/aoti_runner/model_container_runner_cpu.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "preload/plugin/answer.h"
#include "preload/select/clock.h"

namespace ipexrun::preload::graph {
namespace {

constexpr std::size_t kAtOnce = 4;  ///< threads that may run one part side by side; more of them wait for each other
constexpr int kRounds = 7;          ///< of both forms of a part when the faster one is chosen
constexpr std::int64_t kEnoughTimedNs = 100'000'000;
constexpr double kFaster = 0.95;  ///< of the time of the steps of ours

constinit thread_local bool choosing_here = false;

}  // namespace

struct CompiledPart::Runner {
  explicit Runner(const std::string& path) : of(path, kAtOnce) {}
  torch::inductor::AOTIModelContainerRunnerCpu of;
};

CompiledPart::CompiledPart(const std::string& path) : runner_(std::make_unique<Runner>(path)) {}
CompiledPart::~CompiledPart() = default;

std::vector<at::Tensor> CompiledPart::run(const std::vector<at::Tensor>& inputs) const {
  std::vector<at::Tensor> results = runner_->of.run(inputs);
  // Inductor drops copies that it takes for needless; here whoever reads a value last may write into its memory.
  for (std::size_t i = 0; i < results.size(); ++i) {
    const auto shares = [&](const at::Tensor& other) { return other.defined() && other.is_alias_of(results[i]); };
    if (std::any_of(inputs.begin(), inputs.end(), shares) ||
        std::any_of(results.begin(), results.begin() + static_cast<std::ptrdiff_t>(i), shares)) {
      results[i] = results[i].clone();
    }
  }
  return results;
}

bool PartInput::fits(const c10::IValue& value) const {
  if (!tensor) return value.isInt() && value.toInt() == number;
  if (!value.isTensor() || !value.toTensor().defined()) return false;
  const at::Tensor& given = value.toTensor();
  return given.scalar_type() == dtype && plain(given) && given.sizes() == at::IntArrayRef(sizes) &&
         given.strides() == at::IntArrayRef(strides);
}

void Part::load(std::shared_ptr<const CompiledPart> code) const {
  if (compiled.load(std::memory_order_acquire) != nullptr) return;
  keeps = std::move(code);
  compiled.store(keeps.get(), std::memory_order_release);
}

namespace {

class PartStep final : public Step {
 public:
  explicit PartStep(const Node& node) : part_(node.part), outputs_(node.outputs) {
    for (const Argument& argument : node.arguments) inputs_.push_back(argument.value);
  }

  void run(Values& values) const override {
    Values inputs;
    inputs.reserve(inputs_.size());
    for (const Value value : inputs_) inputs.push_back(values[static_cast<std::size_t>(value)]);
    const CompiledPart* compiled = part_->compiled.load(std::memory_order_acquire);
    Values results;
    if (compiled != nullptr && (choosing_here || part_->answers.load(std::memory_order_relaxed)) && fit(inputs)) {
      results = choosing_here ? chosen(*compiled, inputs) : by(*compiled, inputs);
    } else {
      results = part_->otherwise->run(std::move(inputs));
    }
    for (std::size_t i = 0; i < outputs_.size(); ++i) values[static_cast<std::size_t>(outputs_[i])] = std::move(results[i]);
  }

 private:
  [[nodiscard]] bool fit(const Values& inputs) const {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (!part_->inputs[i].fits(inputs[i])) return false;
    }
    return true;
  }

  [[nodiscard]] Values by(const CompiledPart& compiled, const Values& inputs) const {
    std::vector<at::Tensor> tensors;
    tensors.reserve(inputs.size() + part_->constants.size());
    for (const c10::IValue& input : inputs) {
      if (input.isTensor()) tensors.push_back(input.toTensor());
    }
    tensors.insert(tensors.end(), part_->constants.begin(), part_->constants.end());
    Values results;
    for (at::Tensor& result : compiled.run(tensors)) results.emplace_back(std::move(result));
    if (results.size() != outputs_.size()) throw std::logic_error("a compiled part has other results than it should");
    return results;
  }

  [[nodiscard]] Values chosen(const CompiledPart& compiled, const Values& inputs) const {
    std::int64_t least[2] = {std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::max()};
    Values results[2];
    const std::int64_t began_ns = steady_clock().now_ns();
    for (int round = 0; round < kRounds && (round < 2 || steady_clock().now_ns() - began_ns < kEnoughTimedNs); ++round) {
      for (const int form : {0, 1}) {
        const std::int64_t started_ns = steady_clock().now_ns();
        results[form] = form == 0 ? part_->otherwise->run(inputs) : by(compiled, inputs);
        least[form] = std::min(least[form], steady_clock().now_ns() - started_ns);
      }
    }
    const bool faster = static_cast<double>(least[1]) < kFaster * static_cast<double>(least[0]);
    part_->answers.store(faster, std::memory_order_relaxed);
    return std::move(results[faster ? 1 : 0]);
  }

  std::shared_ptr<const Part> part_;
  std::vector<Value> inputs_;
  std::vector<Value> outputs_;
};

}  // namespace

std::unique_ptr<Step> make_part_step(const Node& node) { return std::make_unique<PartStep>(node); }

Values choose_parts(const Program& program, Values inputs) {
  struct Choosing {
    Choosing() { choosing_here = true; }
    ~Choosing() { choosing_here = false; }
    Choosing(const Choosing&) = delete;
    Choosing& operator=(const Choosing&) = delete;
  } const here;
  return program.run(std::move(inputs));
}

}  // namespace ipexrun::preload::graph
