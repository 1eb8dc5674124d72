#include "preload/plugin/graph/pointwise_step.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include "preload/plugin/answer.h"
#include "preload/plugin/parallel.h"
#include "preload/plugin/scratch.h"
#include "preload/plugin/tier.h"

namespace ipexrun::preload::graph {
namespace {

using kernels::kPointDims;
using kernels::PointType;

constexpr int kMostInputs = kernels::kPointSlots;

std::optional<PointType> type_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return PointType::kF32;
    case at::kBFloat16:
      return PointType::kBf16;
    case at::kBool:
      return PointType::kBool;
    default:
      return std::nullopt;
  }
}

/// How the tensors of one call lie, as far as the kernel takes them.
class OperandLayout {
 public:
  /// False where stock's operators have to do it.
  bool find(const std::vector<const at::Tensor*>& inputs) {
    for (const at::Tensor* input : inputs) dims_ = std::max(dims_, static_cast<int>(input->dim()));
    if (dims_ > kPointDims) return false;
    sizes_.fill(1);
    for (const at::Tensor* input : inputs) {
      const int ahead = dims_ - static_cast<int>(input->dim());
      for (int dim = ahead; dim < dims_; ++dim) {
        const std::int64_t size = input->size(dim - ahead);
        if (size == 1) continue;
        if (size == 0 || (sizes_[at(dim)] != 1 && sizes_[at(dim)] != size)) return false;
        sizes_[at(dim)] = size;
      }
    }
    for (const at::Tensor* input : inputs) all_ |= wide(*input);
    for (std::size_t i = 0; i < inputs.size(); ++i) leads_[i] = wide(*inputs[i]) == all_ && !expanded(*inputs[i]);
    return find_order(inputs) && std::all_of(inputs.begin(), inputs.end(), [&](const at::Tensor* input) { return in_order(*input); });
  }

  /// Every operator's result has all of the sizes, and lies as the operands that have.
  [[nodiscard]] bool suits(const std::vector<Pointwise::Member>& members) const {
    for (const Pointwise::Member& member : members) {
      const bool by_input = std::any_of(member.inputs.begin(), member.inputs.end(), [&](int i) { return leads_[at(i)]; });
      if (!by_input && member.members.empty()) return false;  // others are wide by induction
    }
    return true;
  }

  /// By place in the order of memory.
  void strides_of(const at::Tensor& tensor, std::int64_t (&strides)[kPointDims]) const {
    const int ahead = dims_ - static_cast<int>(tensor.dim());
    for (int place = 0; place < dims_; ++place) {
      const int dim = order_[at(place)] - ahead;
      strides[place] = dim < 0 || tensor.size(dim) == 1 ? 0 : tensor.stride(dim);
    }
  }
  void sizes_of(std::int64_t (&sizes)[kPointDims]) const {
    for (int place = 0; place < dims_; ++place) sizes[place] = sizes_[at(order_[at(place)])];
  }
  [[nodiscard]] int dims() const { return dims_; }
  [[nodiscard]] at::Tensor empty(at::ScalarType dtype) const {
    const at::IntArrayRef sizes(sizes_.data(), at(dims_));
    return contiguous_ ? scratch_empty(sizes, dtype) : scratch_empty_strided(sizes, {strides_.data(), at(dims_)}, dtype);
  }

 private:
  static std::size_t at(int place) { return static_cast<std::size_t>(place); }

  /// Bits of the dimensions that it has.
  [[nodiscard]] unsigned wide(const at::Tensor& tensor) const {
    unsigned bits = 0;
    for (int dim = 0; dim < static_cast<int>(tensor.dim()); ++dim) {
      if (tensor.size(dim) != 1) bits |= 1u << (dims_ - static_cast<int>(tensor.dim()) + dim);
    }
    return bits;
  }

  static bool expanded(const at::Tensor& tensor) {
    for (int dim = 0; dim < tensor.dim(); ++dim) {
      if (tensor.size(dim) != 1 && tensor.stride(dim) == 0) return true;
    }
    return false;
  }

  /// Contiguous, to the strides of dimensions of size 1.
  static bool standard(const at::Tensor& tensor) {
    std::int64_t stride = 1;
    for (int dim = static_cast<int>(tensor.dim()) - 1; dim >= 0; --dim) {
      if (tensor.stride(dim) != stride) return false;
      stride *= tensor.size(dim);
    }
    return true;
  }

  /// By the first operand that does not broadcast; the others must not lie in another order. The result has no gaps.
  bool find_order(const std::vector<const at::Tensor*>& inputs) {
    const at::Tensor* leader = nullptr;
    for (std::size_t i = inputs.size(); i-- > 0;) {
      if (leads_[i] && inputs[i]->dim() == dims_) leader = inputs[i];
    }
    if (leader == nullptr) return false;
    std::iota(order_.begin(), order_.end(), 0);
    if (std::count(sizes_.begin(), sizes_.begin() + dims_, 1) > 0) {  // stock's strides of such a dimension depend on all operands'
      return std::all_of(inputs.begin(), inputs.end(), [](const at::Tensor* input) { return standard(*input); });
    }
    std::stable_sort(order_.begin(), order_.begin() + dims_, [&](int a, int b) { return leader->stride(a) > leader->stride(b); });
    contiguous_ = std::is_sorted(order_.begin(), order_.begin() + dims_);
    std::int64_t stride = 1;
    for (int place = dims_ - 1; place >= 0; --place) {
      strides_[at(order_[at(place)])] = stride;
      stride *= sizes_[at(order_[at(place)])];
    }
    return true;
  }

  /// Where it does not broadcast its strides fall, from dimension to dimension: another order could decide that of stock's result.
  [[nodiscard]] bool in_order(const at::Tensor& tensor) const {
    std::int64_t strides[kPointDims];
    strides_of(tensor, strides);
    std::int64_t before = -1;
    for (int place = 0; place < dims_; ++place) {
      if (strides[place] == 0) continue;
      if (before != -1 && strides[place] >= before) return false;
      before = strides[place];
    }
    return true;
  }

  int dims_ = 0;
  std::array<std::int64_t, kPointDims> sizes_{};
  std::array<std::int64_t, kPointDims> strides_{};
  std::array<int, kPointDims> order_{};
  std::array<bool, kMostInputs> leads_{};  ///< the input has all sizes, each element its own place
  unsigned all_ = 0;
  bool contiguous_ = true;
};

class PointwiseStep final : public Step {
 public:
  explicit PointwiseStep(const Node& node) : row_(node.pointwise), outputs_(node.outputs) {
    for (const Argument& argument : node.arguments) inputs_.push_back(argument.value);
    for (const Node& one : row_->nodes) stock_.push_back(make_operator_step(one));
  }

  void run(Values& values) const override {
    if (!run_own(values)) run_stock(values);
  }

 private:
  bool run_own(Values& values) const {
    TierState* state = tier();
    if (state == nullptr || !allowed_here()) return false;
    std::vector<const at::Tensor*> tensors;
    tensors.reserve(inputs_.size());
    std::array<float, kMostInputs> numbers;
    std::array<kernels::PointOperand, kMostInputs> operands;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const c10::IValue& value = values[static_cast<std::size_t>(inputs_[i])];
      if (!value.isTensor()) return false;
      const at::Tensor& tensor = value.toTensor();
      if (!plain(tensor)) return false;
      const auto type = type_of(tensor.scalar_type());
      if (!type && (tensor.dim() != 0 || tensor.is_complex())) return false;
      operands[i].type = type.value_or(PointType::kF32);
      operands[i].data = tensor.const_data_ptr();
      if (!type) {
        numbers[i] = tensor.item<float>();
        operands[i].data = &numbers[i];
      }
      tensors.push_back(&tensor);
    }
    OperandLayout layout;
    if (!layout.find(tensors) || !layout.suits(row_->members)) return false;
    for (std::size_t i = 0; i < inputs_.size(); ++i) layout.strides_of(*tensors[i], operands[i].strides);

    std::vector<at::Tensor> made;
    std::array<kernels::PointResult, kMostInputs> results;
    for (std::size_t i = 0; i < row_->results.size(); ++i) {
      const Pointwise::Result& result = row_->results[i];
      made.push_back(layout.empty(result.dtype));
      results[i].data = made.back().mutable_data_ptr();
      results[i].type = *type_of(result.dtype);
      results[i].slot = result.slot;
      layout.strides_of(made.back(), results[i].strides);
    }
    kernels::PointwiseArgs args;
    args.dims = layout.dims();
    layout.sizes_of(args.sizes);
    args.inputs = operands.data();
    args.input_count = static_cast<int>(inputs_.size());
    args.constants = row_->constants.data();
    args.constant_count = static_cast<int>(row_->constants.size());
    args.instructions = row_->instructions.data();
    args.instruction_count = static_cast<int>(row_->instructions.size());
    args.results = results.data();
    args.result_count = static_cast<int>(made.size());
    args.slots = row_->slots;
    if (!kernels::pointwise(args, torch_pool(), state->options.isa)) return false;
    for (std::size_t i = 0; i < made.size(); ++i) values[static_cast<std::size_t>(outputs_[i])] = std::move(made[i]);
    return true;
  }

  /// The operators know their values by the numbers that these had when the row was made.
  void run_stock(Values& values) const {
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      if (row_->inputs[i] != inputs_[i]) values[static_cast<std::size_t>(row_->inputs[i])] = values[static_cast<std::size_t>(inputs_[i])];
    }
    for (const auto& step : stock_) step->run(values);
    std::vector<at::Tensor> results;
    for (const Pointwise::Result& result : row_->results) {
      at::Tensor tensor = values[static_cast<std::size_t>(result.value)].toTensor();
      results.push_back(tensor.scalar_type() == result.dtype ? tensor : tensor.to(result.dtype));
    }
    for (const Node& node : row_->nodes) values[static_cast<std::size_t>(node.outputs[0])] = {};
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      if (row_->inputs[i] != inputs_[i]) values[static_cast<std::size_t>(row_->inputs[i])] = {};
    }
    for (std::size_t i = 0; i < results.size(); ++i) values[static_cast<std::size_t>(outputs_[i])] = std::move(results[i]);
  }

  std::shared_ptr<const Pointwise> row_;
  std::vector<Value> inputs_;
  std::vector<Value> outputs_;
  std::vector<std::unique_ptr<Step>> stock_;
};

}  // namespace

std::unique_ptr<Step> make_pointwise_step(const Node& node) { return std::make_unique<PointwiseStep>(node); }

}  // namespace ipexrun::preload::graph
