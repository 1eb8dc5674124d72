#include "preload/plugin/op_trial.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>

#include <new>

#include "preload/plugin/tier.h"
#include "preload/plugin/weight_use.h"

namespace ipexrun::preload {
namespace {

/// Both have the same face: a candidate whose result differs in dtype, shape or strides is as wrong as one with other numbers.
bool same_face(const at::Tensor& stock, const at::Tensor& result) {
  if (stock.defined() != result.defined()) return false;
  return !stock.defined() ||
         (result.sizes() == stock.sizes() && result.strides() == stock.strides() && result.scalar_type() == stock.scalar_type());
}

bool same_faces(const Outputs& stock, const Outputs& result) {
  if (!same_face(stock.first, result.first) || stock.more.size() != result.more.size()) return false;
  for (std::size_t i = 0; i < stock.more.size(); ++i) {
    if (!same_face(stock.more[i], result.more[i])) return false;
  }
  return true;
}

}  // namespace

void OpTrial::look_up() {
  if (looked_up_) return;
  looked_up_ = true;
  use_ = weight_use_of(call_, site_.stock_ns.load(std::memory_order_relaxed));
  weight_ = state_.weights.use(
      use_, [&] { return liveness_of(*call_.weight()); }, forced_);
}

std::uint64_t OpTrial::weight() noexcept {
  if (!has_weight_) return 0;
  try {
    look_up();
  } catch (const std::bad_alloc&) {
    state_.weights.drop_all();
  }
  return weight_.weight == nullptr ? kUnknownWeight : weight_.weight->id;
}

Readiness OpTrial::verdict_of(int candidate) const {
  if (!has_weight_) {
    const std::uint32_t bits = site_.verdicts.load(std::memory_order_relaxed);
    if ((bits >> (candidate + 16) & 1u) != 0) return Readiness::kNever;
    return (bits >> candidate & 1u) != 0 ? Readiness::kReady : Readiness::kUnverified;
  }
  switch (state_.weights.verdict(*weight_.weight, site_.number, candidate)) {
    case Verdict::kAccurate:
      return Readiness::kReady;
    case Verdict::kInaccurate:
      return Readiness::kNotNow;
    case Verdict::kUnknown:
      break;
  }
  return Readiness::kUnverified;
}

void OpTrial::run_stock() {
  delivered_ = !beside_;
  outputs_ = beside_ ? stock_aside_() : stock_();
}

Outputs OpTrial::result() && {
  if (!delivered_) call_.deliver(&outputs_);
  return std::move(outputs_);
}

Readiness OpTrial::prepare(int candidate) noexcept {
  beside_ = true;
  try {
    if (!has_weight_) return verdict_of(candidate);
    look_up();
    if (weight_.weight == nullptr) return Readiness::kNotNow;
    const Readiness verdict = verdict_of(candidate);
    if (verdict == Readiness::kNotNow) return verdict;
    auto& pack = weight_.packs[static_cast<std::size_t>(candidate)];
    if (pack == nullptr) {
      if (state_.weights.read_only() || !state_.weights.may_pack(*weight_.weight)) return Readiness::kNotNow;
      state_.weights.pin_bytes(*weight_.weight, use_);
      const TierOff inner_calls_are_stock;
      const at::AutoDispatchBelowAutograd below;
      pack = call_.pack(candidate);
      const bool racing = forced_ || site_.state.load(std::memory_order_relaxed) == SiteState::kExploring;
      if (!state_.weights.put(*weight_.weight, candidate, pack, racing)) {
        pack.reset();
        return Readiness::kNotNow;
      }
    }
    return verdict;
  } catch (const std::bad_alloc&) {
    state_.weights.drop_all();
  } catch (const std::exception&) {
    return Readiness::kNever;
  }
  return Readiness::kNotNow;
}

bool OpTrial::run(int candidate) noexcept {
  try {
    RECORD_FUNCTION(candidate_name(candidate), c10::ArrayRef<const c10::IValue>{});  // costs a branch while no profiler runs
    const TierOff inner_calls_are_stock;
    const at::AutoDispatchBelowAutograd below;
    const auto& pack = weight_.packs[static_cast<std::size_t>(candidate)];
    Outputs result = call_.run(candidate, static_cast<const TensorPack*>(pack.get()), state_.options.isa);
    const bool done = result.defined();
    if (done && site_.state.load(std::memory_order_relaxed) == SiteState::kExploring) call_.deliver_aside(result);
    results_[static_cast<std::size_t>(candidate)] = std::move(result);
    return done;
  } catch (const std::bad_alloc&) {
    state_.weights.drop_all();
  } catch (const std::exception&) {
    // Whatever a candidate raises, stock answers the call on intact inputs.
  }
  return false;
}

void OpTrial::take(int candidate) noexcept {
  delivered_ = false;
  outputs_ = std::move(results_[static_cast<std::size_t>(candidate)]);
}

bool OpTrial::verify(int candidate) noexcept {
  bool good = false;
  try {
    const Outputs& result = results_[static_cast<std::size_t>(candidate)];
    good = same_faces(outputs_, result) && call_.accurate(outputs_, result, candidate);
    if (!has_weight_) {
      site_.verdicts.fetch_or(1u << (good ? candidate : candidate + 16), std::memory_order_relaxed);
    } else if (weight_.weight != nullptr) {
      state_.weights.set_verdict(*weight_.weight, site_.number, candidate, good);
    }
  } catch (const std::exception&) {
    return false;
  }
  return good;
}

}  // namespace ipexrun::preload
