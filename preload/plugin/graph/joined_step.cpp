// The parts of a joined pack are packs of the table like any other, one a weight, which share one buffer: what changes, is checked or is
// evicted, is a single weight's pack, and the op tier reads the same memory. (The buffer goes when its last part does.) Where the parts do
// not lie one after the other, all are packed anew.
#include "preload/plugin/graph/joined_step.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>
#include <vector>

#include "kernels/linear.h"
#include "kernels/linear_f32.h"
#include "preload/plugin/answer.h"
#include "preload/plugin/candidate_kernels.h"
#include "preload/plugin/graph/duel.h"
#include "preload/plugin/graph/linear_step.h"
#include "preload/plugin/graph/rows_apart.h"
#include "preload/plugin/graph/view_step.h"
#include "preload/plugin/op_call.h"
#include "preload/plugin/parallel.h"
#include "preload/plugin/scratch.h"
#include "preload/select/clock.h"

namespace ipexrun::preload::graph {
namespace {

constexpr std::int64_t kDuelOfJoined = 3;  ///< beside those of linear layers and of convolutions

/// How often packs that are valid may be made anew because they lie apart: other graphs may join the same weights in other ways.
constexpr int kGatherings = 4;

struct JoinedPart {
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
  explicit JoinedStep(const Node& node)
      : x_(node.arguments[0].value), bf16_out_((node.index & kJoinedBf16Out) != 0), exact_((node.index & kJoinedExact) != 0) {
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      const JoinedPart part{node.arguments[1 + 2 * i].value, node.arguments[2 + 2 * i].value, node.outputs[i]};
      parts_.push_back(part);
      Node single;
      single.kind = Node::Kind::kLinear;
      single.linear.x = x_;
      single.linear.weight = part.weight;
      single.linear.bias = part.bias;
      single.linear.bf16_out = bf16_out_;
      single.linear.exact = exact_;
      single.outputs = {part.result};
      singles_.emplace_back(single);
    }
  }

  [[nodiscard]] const char* kernel() const override { return tried_.last() > 0 ? name_of_exact(tried_.last()) : singles_[0].kernel(); }

  void run(Values& values) const override {
    const std::optional<Call> call = tier() != nullptr && allowed_here() ? describe(values) : std::nullopt;
    if (exact_) return run_exact(values, call);
    if (!call || !run_joined(values, *call, false)) run_singles(values);
  }

 private:
  /// What is multiplied, once it is known that it may be.
  struct Call {
    const at::Tensor& x;
    at::ScalarType dtype;  ///< of the weights
    std::int64_t n;
    bool with_bias;
  };

  void run_singles(Values& values) const {
    for (const LinearStep& single : singles_) single.run(values);
  }

  /// Beside single products once the kernels of these are chosen.
  void run_exact(Values& values, const std::optional<Call>& call) const {
    const at::Tensor& x = tensor_of(values, x_);
    Duel* duel = nullptr;
    if (call && x.scalar_type() == at::kFloat && call->dtype == at::kFloat && is_offered(*call)) {
      const ForkGate::Passage passage(tier()->fork_gate);  // no fork while the table of duels is locked
      if (passage) {
        duel = duel_of({kDuelOfJoined, x.size(0), call->n, x.size(1), static_cast<std::int64_t>(parts_.size()), at::get_num_threads()});
        for (std::size_t i = 0; duel != nullptr && !duel->decided() && i < parts_.size(); ++i) {
          if (singles_[i].way_of(x, {tensor_of(values, parts_[i].weight), true}) < 0) duel = nullptr;
        }
      }
    }
    if (duel == nullptr) return run_singles(values);
    const bool open = !duel->decided();
    const int ways = open ? ways_of_exact(x.size(0), call->n, x.size(1), tier()->options.isa) : 0;
    const int way = duel->way(ways, tried_);
    const bool counts = tried_.has(way);
    if (!open && way == 0 && (tried_.has(kVectors) || tried_.has(kParts)) && tried_.forget()) forget_packs(values);
    const std::int64_t started_ns = open ? steady_clock().now_ns() : 0;
    if (way != 0 && !run_joined(values, *call, way == kParts)) {
      if (open) duel->failed(way, ways);  // later there may be room for its packs again
      return run_singles(values);
    }
    if (way == 0) run_singles(values);
    if (open) duel->took(way, ways, steady_clock().now_ns() - started_ns, counts);
    tried_.add(way);
  }

  static bool is_offered(const Call& call) {
    kernels::LinearF32Args args;
    args.m = call.x.size(0);
    args.n = call.n;
    args.k = call.x.size(1);
    return kernels::linear_f32_supported(args, tier()->options.isa);
  }

  /// Of those of several products that stock's operators multiply.
  void forget_packs(const Values& values) const {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const Matrix weight{tensor_of(values, parts_[i].weight), true};
      if (singles_[i].way_of(tensor_of(values, x_), weight) == 0) LinearStep::forget_exact(weight);
    }
    tried_.remove(kVectors);
    tried_.remove(kParts);
  }

  [[nodiscard]] std::optional<Call> describe(const Values& values) const {
    const at::Tensor& x = tensor_of(values, x_);
    if (!of_kernel(x) || x.dim() != 2 || x.numel() == 0 || (x.size(1) > 1 && x.stride(1) != 1) ||
        (x.size(0) > 1 && x.stride(0) < x.size(1)))
      return {};
    Call call{x, tensor_of(values, parts_[0].weight).scalar_type(), 0, false};
    for (const JoinedPart& part : parts_) {
      const at::Tensor& weight = tensor_of(values, part.weight);
      const at::Tensor& bias = tensor_of(values, part.bias);
      if (!of_kernel(weight) || weight.scalar_type() != call.dtype || weight.dim() != 2 || weight.size(1) != x.size(1)) return {};
      if (&part != &parts_.back() && weight.size(0) % kJoinedColumns != 0) return {};
      if (bias.defined() &&
          !(of_kernel(bias) && bias.is_contiguous() && bias.scalar_type() == call.dtype && bias.numel() == weight.size(0)))
        return {};
      call.with_bias = call.with_bias || bias.defined();
      call.n += weight.size(0);
    }
    return call;
  }

  /// `parts`: of float32 as float32.
  bool run_joined(Values& values, const Call& call, bool parts) const {
    TierState* state = tier();
    const ForkGate::Passage passage(state->fork_gate);
    Joined joined;
    if (!passage || !packs_of(*state, values, &joined)) return false;
    const at::ScalarType dtype = bf16_out_ ? at::kBFloat16 : call.dtype;
    const std::int64_t m = call.x.size(0);
    const at::Tensor result = room_for(m, call.n, dtype, meet_in_one_set(call.n * static_cast<std::int64_t>(at::elementSize(dtype))));
    const at::Tensor bias = call.with_bias ? biases(values, call.n, call.dtype) : at::Tensor();
    if (!multiply(call, joined, bias, result, parts, state->options.isa)) return false;
    std::int64_t column = 0;
    for (const JoinedPart& part : parts_) {
      const std::int64_t n = tensor_of(values, part.weight).size(0);
      values[static_cast<std::size_t>(part.result)] = strided(result, {m, n}, {result.stride(0), 1}, column);
      column += n;
    }
    return true;
  }

  [[nodiscard]] bool multiply(const Call& call, const Joined& joined, const at::Tensor& bias, const at::Tensor& result, bool parts,
                              IsaSet isa) const {
    const auto of = [&](auto args) {
      args.a = call.x.const_data_ptr();
      args.lda = call.x.size(0) > 1 ? call.x.stride(0) : call.x.size(1);
      args.m = call.x.size(0);
      args.n = call.n;
      args.k = call.x.size(1);
      args.packed_b = joined.data();
      if (bias.defined()) args.bias = bias.const_data_ptr();
      args.c = result.mutable_data_ptr();
      args.ldc = result.stride(0);
      return args;
    };
    if (exact_) {
      kernels::LinearF32Args args = of(kernels::LinearF32Args());
      args.parts = parts;
      return kernels::linear_f32(args, torch_pool(), isa);
    }
    kernels::LinearArgs args = of(kernels::LinearArgs());
    args.a_dtype = kernel_dtype(call.x);
    if (bias.defined()) args.bias_dtype = kernel_dtype(bias);
    args.c_dtype = kernel_dtype(result);
    return kernels::linear_bf16(args, torch_pool(), isa);
  }

  /// All biases as one; those that are absent are zeros.
  [[nodiscard]] at::Tensor biases(const Values& values, std::int64_t n, at::ScalarType dtype) const {
    at::Tensor all = at::empty({n}, at::TensorOptions().dtype(dtype));
    auto* to = static_cast<char*>(all.mutable_data_ptr());
    for (const JoinedPart& part : parts_) {
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

  [[nodiscard]] int candidate() const { return exact_ ? kOwnF32 : kOwnBf16; }
  [[nodiscard]] std::size_t bytes_of(const Matrix& weight) const {
    return exact_ ? kernels::packed_f32_bytes(weight.k(), weight.n(), false) : kernels::packed_b_bytes(weight.k(), weight.n());
  }

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
    for (const JoinedPart& part : parts_) {
      const Matrix weight{tensor_of(values, part.weight), true};
      auto pack =
          std::static_pointer_cast<const TensorPack>(known_weight(state, weight, nullptr).packs[static_cast<std::size_t>(candidate())]);
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
      const void* from = weight.tensor.const_data_ptr();
      if (exact_) {
        kernels::pack_f32({from, false, weight.k(), weight.n(), weight.stride_k(), weight.stride_n()}, to.mutable_data_ptr(), torch_pool(),
                          state.options.isa);
      } else {
        kernels::pack_b({from, kernel_dtype(weight.tensor), weight.k(), weight.n(), weight.stride_k(), weight.stride_n()},
                        to.mutable_data_ptr(), torch_pool(), state.options.isa);
      }
      const auto size = static_cast<std::size_t>(own);
      if (!state.weights.put(*known[i].weight, candidate(), std::make_shared<const TensorPack>(std::move(to), size), true)) return false;
    }
    return true;
  }

  Value x_;
  bool bf16_out_;
  bool exact_;
  mutable WaysTried tried_;  ///< of float32 as float32
  std::vector<JoinedPart> parts_;
  std::vector<LinearStep> singles_;
  mutable std::mutex packing_;
  mutable std::atomic<int> gatherings_{0};
};

}  // namespace

std::unique_ptr<Step> make_joined_step(const Node& node) { return std::make_unique<JoinedStep>(node); }

}  // namespace ipexrun::preload::graph
