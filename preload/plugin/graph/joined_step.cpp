// The parts of a joined pack are packs of the table like any other, one a weight, which share one buffer: what changes, is checked or is
// evicted, is a single weight's pack, and the op tier reads the same memory. (The buffer goes when its last part does.) Where the parts do
// not lie one after the other, all are packed anew.
#include "preload/plugin/graph/joined_step.h"

#include <ATen/ops/empty.h>

#include <atomic>
#include <cstring>
#include <mutex>

#include "kernels/linear.h"
#include "preload/plugin/answer.h"
#include "preload/plugin/candidate_kernels.h"
#include "preload/plugin/graph/linear_step.h"
#include "preload/plugin/graph/view_step.h"
#include "preload/plugin/op_call.h"
#include "preload/plugin/parallel.h"
#include "preload/plugin/scratch.h"

namespace ipexrun::preload::graph {
namespace {

/// How often packs that are valid may be made anew because they lie apart: other graphs may join the same weights in other ways.
constexpr int kGatherings = 4;

struct Part {
  Value weight;
  Value bias;
  Value result;
};

/// Packs of all parts, one after the other.
struct Joined {
  std::vector<std::shared_ptr<const TensorPack>> packs;  ///< keep the memory
  [[nodiscard]] const void* data() const { return packs[0]->packed().const_data_ptr(); }
};

class JoinedStep final : public Step {
 public:
  explicit JoinedStep(const Node& node) : x_(node.arguments[0].value), bf16_out_(node.index != 0) {
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      const Part part{node.arguments[1 + 2 * i].value, node.arguments[2 + 2 * i].value, node.outputs[i]};
      parts_.push_back(part);
      Node single;
      single.kind = Node::Kind::kLinear;
      single.linear.x = x_;
      single.linear.weight = part.weight;
      single.linear.bias = part.bias;
      single.linear.bf16_out = bf16_out_;
      single.outputs = {part.result};
      singles_.emplace_back(single);
    }
  }

  void run(Values& values) const override {
    if (run_joined(values)) return;
    for (const LinearStep& single : singles_) single.run(values);
  }

 private:
  bool run_joined(Values& values) const {
    TierState* state = tier();
    const at::Tensor& x = tensor_of(values, x_);
    if (state == nullptr || !allowed_here() || !of_kernel(x) || x.dim() != 2 || x.numel() == 0 || (x.size(1) > 1 && x.stride(1) != 1))
      return false;
    kernels::LinearArgs args;
    args.a = x.const_data_ptr();
    args.a_dtype = kernel_dtype(x);
    args.lda = x.size(0) > 1 ? x.stride(0) : x.size(1);
    args.m = x.size(0);
    args.k = x.size(1);
    if (args.lda < args.k) return false;
    const at::Tensor& first = tensor_of(values, parts_[0].weight);
    bool with_bias = false;
    for (const Part& part : parts_) {
      const at::Tensor& weight = tensor_of(values, part.weight);
      const at::Tensor& bias = tensor_of(values, part.bias);
      if (!of_kernel(weight) || weight.scalar_type() != first.scalar_type() || weight.dim() != 2 || weight.size(1) != args.k) return false;
      if (&part != &parts_.back() && weight.size(0) % kJoinedColumns != 0) return false;
      if (bias.defined() &&
          !(of_kernel(bias) && bias.is_contiguous() && bias.scalar_type() == first.scalar_type() && bias.numel() == weight.size(0)))
        return false;
      with_bias = with_bias || bias.defined();
      args.n += weight.size(0);
    }
    const ForkGate::Passage passage(state->fork_gate);
    Joined joined;
    if (!passage || !packs_of(*state, values, &joined)) return false;
    args.packed_b = joined.data();
    at::Tensor bias;
    if (with_bias) {
      bias = biases(values, args.n, first.scalar_type());
      args.bias = bias.const_data_ptr();
      args.bias_dtype = kernel_dtype(bias);
    }
    const at::Tensor result = scratch_empty({args.m, args.n}, bf16_out_ ? at::kBFloat16 : first.scalar_type());
    args.ldc = args.n;
    args.c = result.mutable_data_ptr();
    args.c_dtype = kernel_dtype(result);
    if (!kernels::linear_bf16(args, torch_pool(), state->options.isa)) return false;
    std::int64_t column = 0;
    for (const Part& part : parts_) {
      const std::int64_t n = tensor_of(values, part.weight).size(0);
      values[static_cast<std::size_t>(part.result)] = strided(result, {args.m, n}, {args.n, 1}, column);
      column += n;
    }
    return true;
  }

  /// All biases as one; those that are absent are zeros.
  [[nodiscard]] at::Tensor biases(const Values& values, std::int64_t n, at::ScalarType dtype) const {
    at::Tensor all = at::empty({n}, at::TensorOptions().dtype(dtype));
    auto* to = static_cast<char*>(all.mutable_data_ptr());
    for (const Part& part : parts_) {
      const at::Tensor& bias = tensor_of(values, part.bias);
      const std::size_t bytes = static_cast<std::size_t>(tensor_of(values, part.weight).size(0)) * all.element_size();
      if (bias.defined()) {
        std::memcpy(to, bias.const_data_ptr(), bytes);
      } else {
        std::memset(to, 0, bytes);
      }
      to += bytes;
    }
    return all;
  }

  static std::size_t bytes_of(const Matrix& weight) { return kernels::packed_b_bytes(weight.k(), weight.n()); }

  bool packs_of(TierState& state, const Values& values, Joined* joined) const {
    bool valid = true;
    if (look_up(state, values, joined, &valid)) return true;
    const std::lock_guard lock(packing_);  // one thread packs; the others find what it made
    if (look_up(state, values, joined, &valid)) return true;
    if (valid && gatherings_.fetch_add(1, std::memory_order_relaxed) >= kGatherings) return false;
    return pack(state, values) && look_up(state, values, joined, &valid);
  }

  /// True where every part has a valid pack and they lie one after the other. `valid`: at least the first.
  bool look_up(TierState& state, const Values& values, Joined* joined, bool* valid) const {
    joined->packs.clear();
    *valid = true;
    bool adjacent = true;
    const char* next = nullptr;
    for (const Part& part : parts_) {
      const Matrix weight{tensor_of(values, part.weight), true};
      auto pack = std::static_pointer_cast<const TensorPack>(known_weight(state, weight, nullptr).packs[kOwnBf16]);
      if (pack == nullptr) {
        *valid = false;
        return false;
      }
      const auto* data = static_cast<const char*>(pack->packed().const_data_ptr());
      adjacent = adjacent && (next == nullptr || data == next);
      next = data + bytes_of(weight);
      joined->packs.push_back(std::move(pack));
    }
    return adjacent;
  }

  bool pack(TierState& state, const Values& values) const {
    if (state.weights.read_only()) return false;
    std::size_t bytes = 0;
    std::vector<WeightState> known;
    std::vector<WeightUse> uses(parts_.size());
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const Matrix weight{tensor_of(values, parts_[i].weight), true};
      known.push_back(known_weight(state, weight, &uses[i]));
      if (known[i].weight == nullptr || !state.weights.may_pack(*known[i].weight) || bytes_of(weight) == 0) return false;
      bytes += bytes_of(weight);
    }
    const at::Tensor buffer = pack_memory(bytes);
    std::int64_t at = 0;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const Matrix weight{tensor_of(values, parts_[i].weight), true};
      const auto own = static_cast<std::int64_t>(bytes_of(weight));
      at::Tensor to = strided(buffer, {own}, {1}, at);
      at += own;
      state.weights.pin_bytes(*known[i].weight, uses[i]);
      kernels::pack_b(
          {weight.tensor.const_data_ptr(), kernel_dtype(weight.tensor), weight.k(), weight.n(), weight.stride_k(), weight.stride_n()},
          to.mutable_data_ptr(), torch_pool(), state.options.isa);
      const auto size = static_cast<std::size_t>(own);
      if (!state.weights.put(*known[i].weight, kOwnBf16, std::make_shared<const TensorPack>(std::move(to), size), true)) return false;
    }
    return true;
  }

  Value x_;
  bool bf16_out_;
  std::vector<Part> parts_;
  std::vector<LinearStep> singles_;
  mutable std::mutex packing_;
  mutable std::atomic<int> gatherings_{0};
};

}  // namespace

std::unique_ptr<Step> make_joined_step(const Node& node) { return std::make_unique<JoinedStep>(node); }

}  // namespace ipexrun::preload::graph
