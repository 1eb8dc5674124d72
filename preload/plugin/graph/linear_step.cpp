#include "preload/plugin/graph/linear_step.h"

#include <ATen/Parallel.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tanh.h>

#include <array>

#include "kernels/linear.h"
#include "kernels/linear_f32.h"
#include "preload/plugin/answer.h"
#include "preload/plugin/candidate_kernels.h"
#include "preload/plugin/graph/duel.h"
#include "preload/plugin/graph/view_step.h"
#include "preload/plugin/op_call.h"
#include "preload/plugin/parallel.h"
#include "preload/plugin/scratch.h"
#include "preload/plugin/weight_use.h"
#include "preload/select/clock.h"

namespace ipexrun::preload::graph {
namespace {

constexpr std::int64_t kDuelOfLinears = 1;

/// `candidate`: kOwnBf16 or kOwnF32.
std::shared_ptr<const TensorPack> packed(TierState& state, const Matrix& w, int candidate) {
  WeightUse use;
  WeightState known = known_weight(state, w, &use);
  if (known.weight == nullptr) return nullptr;
  auto& have = known.packs[static_cast<std::size_t>(candidate)];
  if (have == nullptr) {
    if (state.weights.read_only() || !state.weights.may_pack(*known.weight)) return nullptr;
    state.weights.pin_bytes(*known.weight, use);
    const bool exact = candidate == kOwnF32;
    const std::size_t bytes = exact ? kernels::packed_f32_bytes(w.k(), w.n(), false) : kernels::packed_b_bytes(w.k(), w.n());
    if (bytes == 0) return nullptr;
    at::Tensor to = pack_memory(bytes);
    if (exact) {
      kernels::pack_f32({w.tensor.const_data_ptr(), false, w.k(), w.n(), w.stride_k(), w.stride_n()}, to.mutable_data_ptr(), torch_pool(),
                        state.options.isa);
    } else {
      kernels::pack_b({w.tensor.const_data_ptr(), kernel_dtype(w.tensor), w.k(), w.n(), w.stride_k(), w.stride_n()}, to.mutable_data_ptr(),
                      torch_pool(), state.options.isa);
    }
    have = std::make_shared<const TensorPack>(std::move(to), bytes);
    if (!state.weights.put(*known.weight, candidate, have, true)) return nullptr;
  }
  return std::static_pointer_cast<const TensorPack>(have);
}

at::Tensor applied(const at::Tensor& x, kernels::Unary unary) {
  switch (unary) {
    case kernels::Unary::kNone:
      break;
    case kernels::Unary::kRelu:
      return at::relu(x);
    case kernels::Unary::kGelu:
      return at::gelu(x);
    case kernels::Unary::kGeluTanh:
      return at::gelu(x, "tanh");
    case kernels::Unary::kTanh:
      return at::tanh(x);
    case kernels::Unary::kSigmoid:
      return at::sigmoid(x);
    case kernels::Unary::kSilu:
      return at::silu(x);
  }
  return x;
}

}  // namespace

int ways_of_exact(std::int64_t m, std::int64_t n, std::int64_t k, IsaSet isa) {
  kernels::LinearF32Args args;
  args.m = m;
  args.n = n;
  args.k = k;
  return kernels::linear_f32_has_parts(args, isa) ? kParts + 1 : kVectors + 1;
}

const char* name_of_exact(int way) {
  constexpr std::array<const char*, kParts + 1> kNames = {"stock's", "vectors", "parts of bf16"};
  return way < 0 ? nullptr : kNames[static_cast<std::size_t>(way)];
}

at::Tensor room_for(std::int64_t rows, std::int64_t columns, at::ScalarType dtype, bool apart) {
  constexpr std::int64_t kLineBytes = 64;
  const auto between = apart ? kLineBytes / static_cast<std::int64_t>(at::elementSize(dtype)) : 0;
  return scratch_empty_strided({rows, columns}, {columns + between, 1}, dtype);
}

const at::Tensor& tensor_of(const Values& values, Value value) {
  static const at::Tensor none;
  if (value == kNone) return none;
  const c10::IValue& at = values[static_cast<std::size_t>(value)];
  return at.isNone() ? none : at.toTensor();
}

bool of_kernel(const at::Tensor& tensor) {
  return (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kBFloat16) && plain(tensor);
}

WeightState known_weight(TierState& state, const Matrix& weight, WeightUse* use) {
  WeightUse asked = weight_use_of(weight.tensor);
  asked.key.sizes = {weight.k(), weight.n()};
  asked.key.strides = {weight.stride_k(), weight.stride_n()};
  WeightState known = state.weights.use(
      asked, [&] { return liveness_of(weight.tensor); }, true);
  if (use != nullptr) *use = asked;
  return known;
}

LinearStep::LinearStep(const Node& node) : linear_(node.linear), shape_(node.arguments), output_(node.outputs[0]) {}

void LinearStep::run(Values& values) const {
  const Matrix weight{tensor_of(values, linear_.weight), linear_.rows_are_outputs};
  const at::Tensor& bias = tensor_of(values, linear_.bias);
  const at::Tensor& x = tensor_of(values, linear_.x);
  at::Tensor other = tensor_of(values, linear_.other);
  if (other.defined()) other = other.reshape({-1, weight.n()});
  at::Tensor result;
  if (linear_.exact) {
    result = run_exact(x, weight, bias, other);
  } else if (!run_own(x, weight, bias, other, &result)) {
    result = run_stock(x, weight, bias, other);
  }
  if (!shape_.empty()) {
    Sizes sizes;
    at::Tensor shaped = sizes_of(shape_[0], values, &sizes) ? viewed(result, sizes) : at::Tensor();
    if (!shaped.defined()) {
      static const c10::TypePtr kSizes = c10::ListType::ofInts();
      shaped = result.view(resolve(shape_[0], values, kSizes.get()).toIntVector());
    }
    result = std::move(shaped);
  }
  values[static_cast<std::size_t>(output_)] = std::move(result);
}

bool LinearStep::run_own(const at::Tensor& x, const Matrix& weight, const at::Tensor& bias, const at::Tensor& other,
                         at::Tensor* out) const {
  TierState* state = tier();
  if (state == nullptr || !allowed_here() || !of_kernel(x) || !of_kernel(weight.tensor) || x.dim() != 2 ||
      (x.size(1) > 1 && x.stride(1) != 1) || x.numel() == 0)
    return false;
  if (bias.defined() && !(bias.is_contiguous() && of_kernel(bias))) return false;
  if (other.defined() && !of_kernel(other)) return false;
  const ForkGate::Passage passage(state->fork_gate);
  if (!passage) return false;
  kernels::LinearArgs args;
  args.a = x.const_data_ptr();
  args.a_dtype = kernel_dtype(x);
  args.lda = x.size(0) > 1 ? x.stride(0) : x.size(1);
  if (args.lda < x.size(1)) return false;
  args.m = x.size(0);
  args.n = weight.n();
  args.k = x.size(1);
  const std::shared_ptr<const TensorPack> pack = packed(*state, weight, kOwnBf16);
  if (pack == nullptr) return false;
  args.packed_b = pack->packed().const_data_ptr();
  if (bias.defined()) {
    args.bias = bias.const_data_ptr();
    args.bias_dtype = kernel_dtype(bias);
  }
  args.epilogue.unary = linear_.unary;
  if (other.defined()) {
    args.epilogue.binary = linear_.binary;
    args.epilogue.binary_first = linear_.binary_first;
    args.epilogue.other = other.const_data_ptr();
    args.epilogue.other_dtype = kernel_dtype(other);
    args.epilogue.ld_other = other.stride(0);
  }
  *out = room_for(args.m, args.n, linear_.bf16_out ? at::kBFloat16 : weight.tensor.scalar_type(), linear_.rows_apart);
  args.ldc = out->stride(0);
  args.c = out->mutable_data_ptr();
  args.c_dtype = kernel_dtype(*out);
  return kernels::linear_bf16(args, torch_pool(), state->options.isa);
}

Duel* LinearStep::duel(const at::Tensor& x, const Matrix& weight) const {
  const std::int64_t form = static_cast<std::int64_t>(linear_.unary) << 3 | static_cast<std::int64_t>(linear_.binary) << 1 |
                            static_cast<std::int64_t>(linear_.binary_first);
  return duel_of({kDuelOfLinears, x.size(0), weight.n(), weight.k(), form, at::get_num_threads()});
}

int LinearStep::way_of(const at::Tensor& x, const Matrix& weight) const {
  const Duel* found = duel(x, weight);
  if (found == nullptr) return 0;
  return found->winner();
}

at::Tensor LinearStep::run_exact(const at::Tensor& x, const Matrix& weight, const at::Tensor& bias, const at::Tensor& other) const {
  const auto all_f32 = [](const at::Tensor& tensor) { return !tensor.defined() || (tensor.scalar_type() == at::kFloat && plain(tensor)); };
  const bool fits = tier() != nullptr && allowed_here() && x.dim() == 2 && x.numel() > 0 && (x.size(1) == 1 || x.stride(1) == 1) &&
                    (x.size(0) == 1 || x.stride(0) >= x.size(1)) && all_f32(x) && all_f32(weight.tensor) && all_f32(bias) &&
                    all_f32(other) && (!bias.defined() || bias.is_contiguous());
  Duel* found = nullptr;
  if (fits) {
    const ForkGate::Passage passage(tier()->fork_gate);  // no fork while the table of duels is locked
    if (!passage) return run_stock(x, weight, bias, other);
    found = duel(x, weight);
  }
  if (found == nullptr) return run_stock(x, weight, bias, other);
  const bool open = !found->decided();
  const int ways = open ? ways_of_exact(x.size(0), weight.n(), weight.k(), tier()->options.isa) : 0;
  const int way = found->way(ways, tried_);
  const bool counts = tried_.has(way);
  if (!open && way == 0 && (tried_.has(kVectors) || tried_.has(kParts)) && tried_.forget()) {
    forget_exact(weight);
    tried_.remove(kVectors);
    tried_.remove(kParts);
  }
  const std::int64_t started_ns = open ? steady_clock().now_ns() : 0;
  at::Tensor result = way == 0 ? run_stock(x, weight, bias, other) : run_own_exact(x, weight, bias, other, way == kParts);
  if (!result.defined()) {
    if (open) found->failed(way, ways);
    return run_stock(x, weight, bias, other);
  }
  if (open) found->took(way, ways, steady_clock().now_ns() - started_ns, counts);
  tried_.add(way);
  return result;
}

void LinearStep::forget_exact(const Matrix& weight) {
  TierState& state = *tier();
  const ForkGate::Passage passage(state.fork_gate);
  if (!passage || state.weights.read_only()) return;
  const WeightState known = known_weight(state, weight, nullptr);
  if (known.weight != nullptr) state.weights.drop_pack_of(*known.weight, kOwnF32);
}

at::Tensor LinearStep::run_own_exact(const at::Tensor& x, const Matrix& weight, const at::Tensor& bias, const at::Tensor& other,
                                     bool parts) const {
  TierState& state = *tier();
  const ForkGate::Passage passage(state.fork_gate);
  if (!passage) return {};
  kernels::LinearF32Args args;
  args.parts = parts;
  args.m = x.size(0);
  args.n = weight.n();
  args.k = x.size(1);
  args.lda = x.size(0) > 1 ? x.stride(0) : x.size(1);
  if (!kernels::linear_f32_supported(args, state.options.isa)) return {};
  const std::shared_ptr<const TensorPack> pack = packed(state, weight, kOwnF32);
  if (pack == nullptr) return {};
  args.a = x.const_data_ptr();
  args.packed_b = pack->packed().const_data_ptr();
  if (bias.defined()) args.bias = bias.const_data_ptr();
  args.epilogue.unary = linear_.unary;
  at::Tensor beside;
  if (other.defined()) {
    beside = other.stride(1) == 1 || other.size(1) == 1 ? other : other.contiguous();
    args.epilogue.binary = linear_.binary;
    args.epilogue.binary_first = linear_.binary_first;
    args.epilogue.other = beside.const_data_ptr();
    args.epilogue.ld_other = beside.stride(0);
  }
  at::Tensor out = room_for(args.m, args.n, at::kFloat, linear_.rows_apart);
  args.ldc = out.stride(0);
  args.c = out.mutable_data_ptr();
  return kernels::linear_f32(args, torch_pool(), state.options.isa) ? out : at::Tensor();
}

/// x may be bf16 beside a float32 weight (keep_bf16()).
at::Tensor LinearStep::run_stock(const at::Tensor& x, const Matrix& weight, const at::Tensor& bias, const at::Tensor& other) const {
  const at::Tensor a = x.scalar_type() == weight.tensor.scalar_type() ? x : x.to(weight.tensor.scalar_type());
  at::Tensor result = bias.defined() ? at::addmm(bias, a, weight.operand()) : at::mm(a, weight.operand());
  if (!linear_.binary_first) result = applied(result, linear_.unary);
  if (linear_.binary == kernels::Binary::kAdd) result = at::add(result, other);
  if (linear_.binary == kernels::Binary::kMul) result = at::mul(result, other);
  if (linear_.binary_first) result = applied(result, linear_.unary);
  return linear_.bf16_out ? result.to(at::kBFloat16) : result;
}

}  // namespace ipexrun::preload::graph
