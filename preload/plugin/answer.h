// What every adapter does with a call of the user's program: is it one for us at all, at which site, and what does selection say.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <optional>

#include "preload/plugin/op_call.h"
#include "preload/plugin/tier.h"
#include "preload/plugin/tier_state.h"

namespace ipexrun::preload {

/// A plain dense CPU tensor: no conjugate or negative bit, no functorch, Python or quantized key.
bool plain(const at::Tensor& tensor);

/// float32 or bfloat16.
inline bool dtype_fits(at::ScalarType dtype) { return dtype == at::kFloat || dtype == at::kBFloat16; }

/// The same of products and convolutions, which are computed in float16 as well.
inline bool product_dtype_fits(at::ScalarType dtype) { return dtype_fits(dtype) || dtype == at::kHalf; }

/// Whether this thread runs a backward pass: left to stock, and a sign that weights are about to change. Asked before anything
/// else, because the calls of a backward pass often have operands that would be declined for their layout.
bool in_backward(TierState& state);

/// What concerns the process or the thread rather than the tensors. Who switches oneDNN off, or asks for reproducible results,
/// wants the plain kernels: every candidate replaces those.
bool allowed_here();

/// The program asked for float32 as it is (torch.set_float32_matmul_precision("highest"), torch.backends.fp32_precision = "ieee"; not by
/// the default, which is "highest" too), or takes ratios (losses.h). Such a program's products are not rounded under `--dtype auto`.
bool asks_for_ieee();

/// Whether a place that a call writes to can be filled by a copy of a result made aside: `sizes` and dtype are right already and no
/// two of its elements share memory. Whether it overlaps an input is stock's business to refuse: asked before, see `apart`.
bool can_be_filled(const at::Tensor& out, at::IntArrayRef sizes, at::ScalarType dtype);
bool apart(const at::Tensor& a, const at::Tensor& b);

/// Whether a call with these operands belongs to a training step: in a backward pass, or recorded for one in a process that has seen one.
bool is_training(const OpCall& call, const at::Tensor& a, const at::Tensor& b);

/// The right operand of a call that is recorded for a backward pass and fits, where it is a weight or a view of one: whether the program's
/// steps change it (training_guard.h). Nothing for others. (A left one may be a leaf too: an input whose gradient is asked for, in memory
/// that another had before.)
std::optional<bool> weight_steps(const at::Tensor& weight);

/// Hands a call that fits to selection. `stock_aside` computes into new memory what `stock` may write in place.
Outputs select_for(TierState& state, const OpCall& call, c10::function_ref<Outputs()> stock, c10::function_ref<Outputs()> stock_aside);

/// Of the calls left_as_small(), the first and then one in so many are told to count_call(), which keeps the launcher's view of the program
/// up to date.
inline constexpr std::uint64_t kSmallAllCounted = 128;
inline constexpr std::uint64_t kSmallCountedEvery = 1024;

/// Whether calls are taken in a backward pass, too. What they return is not watched for drift there.
template <typename Call>
constexpr bool taken_in_backward() {
  if constexpr (requires { Call::kInBackward; }) {
    return Call::kInBackward;
  } else {
    return false;
  }
}

/// For operators that take a microsecond or two, of which looking at the call would be a tenth: whether it is left to stock because it is
/// `small`, by its sizes alone, of float32. It is counted, and that is all that becomes of it.
inline bool left_as_small(Op op, bool small) {
  if (!small) return false;
  TierState& state = *tier();
  if (state.forced.load(std::memory_order_relaxed) != kStock) return false;  // tests compare the candidate, however small the call
  if (!tier_enabled()) return true;
  in_backward(state);
  const std::uint64_t before = counts_of(op).small.fetch_add(1, std::memory_order_relaxed);
  if (before < kSmallAllCounted || before % kSmallCountedEvery == 0) count_call(state);
  return true;
}

/// `describe` fills the call in and says whether it fits. The order of the tests matters: what declines most often and costs least
/// stands first.
template <typename Call, typename Describe>
Outputs answer(Op op, Describe describe, c10::function_ref<Outputs()> stock, c10::function_ref<Outputs()> stock_aside) {
  if (!tier_enabled()) return stock();
  TierState& state = *tier();
  OpCounts& counts = counts_of(op);
  counts.looked_at.fetch_add(1, std::memory_order_relaxed);
  Call call;
  call.op = op;
  call.backward = in_backward(state);
  if (!call.is(Declined::kBackward, !call.backward || taken_in_backward<Call>()) || !describe(&call) ||
      !call.is(Declined::kSettings, allowed_here())) {
    counts.declined[static_cast<std::size_t>(call.declined)].fetch_add(1, std::memory_order_relaxed);
    count_call(state);
    return stock();
  }
  return select_for(state, call, stock, stock_aside);
}

template <typename Call, typename Describe>
Outputs answer(Op op, Describe describe, c10::function_ref<Outputs()> stock) {
  return answer<Call>(op, describe, stock, stock);
}

}  // namespace ipexrun::preload
