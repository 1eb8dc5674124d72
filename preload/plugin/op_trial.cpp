#include "preload/plugin/op_trial.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>
#include <algorithm>

#include <cstring>
#include <new>

#include "preload/memory/room.h"
#include "preload/plugin/answer.h"
#include "preload/plugin/drift_check.h"
#include "preload/plugin/drift_switch.h"
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

/// torch's allocator throws its general error, told from others by its words.
bool out_of_memory(const std::exception& problem) {
  return dynamic_cast<const std::bad_alloc*>(&problem) != nullptr || std::strstr(problem.what(), "can't allocate memory") != nullptr;
}

/// Each of its calls takes memory for what describes it.
bool by_onednn(int candidate) {
  return candidate == kOnednnBf16Packed || candidate == kOnednnF32Packed || candidate == kOnednnBf16Cast || candidate == kOnednnBf16Last;
}

}  // namespace

/// False when one of the weights is not known well enough yet. May throw std::bad_alloc.
bool OpTrial::look_up() {
  if (!looked_up_) {
    looked_up_ = true;
    known_ = true;
    for (int i = 0; i < weight_count_; ++i) {
      const auto at = static_cast<std::size_t>(i);
      uses_[at] = weight_use_of(call_, i, site_->stock_ns.load(std::memory_order_relaxed));
      weights_[at] = state_.weights.use(
          uses_[at], [&] { return liveness_of(*call_.weight(i)); }, forced_);
      known_ = known_ && weights_[at].weight != nullptr;
    }
  }
  return known_;
}

std::uint64_t OpTrial::weight() noexcept {
  if (weight_count_ == 0) return 0;
  try {
    if (look_up()) return weights_[0].weight->id;
  } catch (const std::bad_alloc&) {
    state_.weights.drop_all();
  }
  return kUnknownWeight;
}

/// A verdict holds for the weights together: it is noted with each, and gone when the bytes of one change.
Readiness OpTrial::verdict_of(int candidate) const {
  if (weight_count_ == 0) {
    const std::uint32_t bits = site_->verdicts.load(std::memory_order_relaxed);
    if ((bits >> (candidate + 16) & 1u) != 0) return Readiness::kNever;
    if (site_->training && TrainingGuard::is_recheck(site_->calls.load(std::memory_order_relaxed))) return Readiness::kUnverified;
    return (bits >> candidate & 1u) != 0 ? Readiness::kReady : Readiness::kUnverified;
  }
  Readiness all = Readiness::kReady;
  for (int i = 0; i < weight_count_; ++i) {
    const Verdict verdict = state_.weights.verdict(*weights_[static_cast<std::size_t>(i)].weight, site_->number, candidate);
    if (verdict == Verdict::kInaccurate) return Readiness::kNotNow;
    if (verdict == Verdict::kUnknown) all = Readiness::kUnverified;
  }
  return all;
}

/// Products of a training step that stock computes in float32, in bf16.
bool OpTrial::rounds_training(int candidate) const {
  return site_->training && candidate_is_bf16(candidate) && call_.changes_dtype() &&
         static_cast<at::ScalarType>(site_->id.form & kFormDtypeBits) == at::kFloat;
}

/// What stock computes in float32, outside of training steps, under --dtype auto.
bool OpTrial::rounds(int candidate) const { return !site_->training && drifts(state_, *site_, candidate); }

/// Gradients of weights that nobody changes are results: with bf16 inside the attributions of a small network are 6e-2 away. Races do
/// without, as above: their user gets stock's.
bool OpTrial::may_round_training() const {
  if (state_.training.off()) return false;
  return forced_ || racing_ || state_.options.dtype != DtypePolicy::kAuto || call_.steps.value_or(state_.training.steps());
}

/// Nobody uses them any more; where another site does, they are made again.
void OpTrial::drop_packs(int candidate) {
  if (site_->state.load(std::memory_order_relaxed) == SiteState::kExploring) return;  // whose timing needs them once more
  for (int i = 0; i < weight_count_; ++i) {
    const WeightState& known = weights_[static_cast<std::size_t>(i)];
    if (known.packs[static_cast<std::size_t>(candidate)] != nullptr) state_.weights.drop_pack_of(*known.weight, candidate);
  }
}

/// A use that drifts waits for a check of a whole pass. Races do without: their user gets stock's result anyway.
Readiness OpTrial::after_drift(int candidate) {
  if (forced_ || racing_ || site_->training || !drifts(state_, *site_, candidate)) {
    return Readiness::kReady;
  }
  if (drift_outside_modules()) return Readiness::kNotNow;
  DriftMark& mark = weight_count_ == 0 ? site_->drift : weights_[0].weight->drift;
  const DriftVerdict verdict = mark.verdict.load(std::memory_order_relaxed);
  if (verdict == DriftVerdict::kTooFar) {
    drop_packs(candidate);
    return Readiness::kNotNow;
  }
  if (drift_replaying()) return state_.drift.may_be_tried(verdict) ? Readiness::kReady : Readiness::kNotNow;
  if (verdict == DriftVerdict::kFine) return Readiness::kReady;
  if (verdict == DriftVerdict::kHeld) return Readiness::kNotNow;
  state_.drift.wait(mark, site_->stock_ns.load(std::memory_order_relaxed) - site_->choice_ns.load(std::memory_order_relaxed));
  return Readiness::kNotNow;
}

/// Answers after_drift() for weights that were found accurate here and wait, by their keys: what is not used needs no look at all of its
/// bytes, which may take longer than the call.
bool OpTrial::waits_for_check(int candidate) {
  if (state_.drift.counts().waiting == 0) [[likely]]
    return false;
  if (looked_up_ || weight_count_ == 0 || forced_ || site_->training || drift_replaying() || !drifts(state_, *site_, candidate))
    return false;
  const std::shared_ptr<Weight> first = state_.weights.find(weight_use_of(call_, 0, 0).key);
  if (first == nullptr) return false;
  for (int i = 0; i < weight_count_; ++i) {
    const std::shared_ptr<Weight> weight = i == 0 ? first : state_.weights.find(weight_use_of(call_, i, 0).key);
    if (weight == nullptr || state_.weights.verdict(*weight, site_->number, candidate) != Verdict::kAccurate) return false;
  }
  const DriftVerdict verdict = first->drift.verdict.load(std::memory_order_relaxed);
  if (verdict == DriftVerdict::kHeld) return true;
  if (verdict != DriftVerdict::kUnknown) return false;
  state_.drift.wait(first->drift, site_->stock_ns.load(std::memory_order_relaxed) - site_->choice_ns.load(std::memory_order_relaxed));
  return true;
}

bool OpTrial::is_kept_from_choice() {
  if (!forced_ && drift_outside_modules())
    return std::any_of(site_->candidates.begin(), site_->candidates.end(), [&](int one) { return rounds(one); });
  const int choice = site_->choice.load(std::memory_order_relaxed);
  if (choice == kStock || !drifts(state_, *site_, choice)) return false;
  if (weight_count_ > 0 && !look_up()) return false;
  const DriftMark& mark = weight_count_ == 0 ? site_->drift : weights_[0].weight->drift;
  const DriftVerdict verdict = mark.verdict.load(std::memory_order_relaxed);
  if (verdict == DriftVerdict::kTooFar) drop_packs(choice);
  return verdict == DriftVerdict::kTooFar || (verdict != DriftVerdict::kFine && (state_.drift.given_up() || state_.drift.waits_long()));
}

void OpTrial::note_replayed(int candidate) {
  if (!drifts(state_, *site_, candidate)) return;
  drift_used(weight_count_ == 0 ? site_->drift : weights_[0].weight->drift, weights_[0].weight);
}

std::uint64_t OpTrial::pass_mark() noexcept {
  if (call_.delivers()) return 0;
  if (weight_count_ == 0) return kAfterWeights + site_->number;  // begins a pass only where there are no others
  if (!looked_up_) {
    if (const std::uint64_t id = state_.weights.id_of(weight_use_of(call_, 0, 0).key); id != 0) return id;
  }
  if (const std::uint64_t id = weight(); id != kUnknownWeight) return id;
  return state_.weights.id_of(uses_[0].key);  // not seen often enough, but the first layer all the same
}

void OpTrial::run_stock() {
  delivered_ = !beside_;
  outputs_ = beside_ ? stock_aside_() : stock_();
}

Outputs OpTrial::result() && {
  if (!delivered_) call_.deliver(&outputs_);
  return std::move(outputs_);
}

/// Makes the pack if there is none; false when there may be none now.
bool OpTrial::pack(int i, int candidate) {
  WeightState& known = weights_[static_cast<std::size_t>(i)];
  auto& pack = known.packs[static_cast<std::size_t>(candidate)];
  if (pack != nullptr) return true;
  if (state_.weights.read_only() || !state_.weights.may_pack(*known.weight)) return false;
  if (by_onednn(candidate) && !has_room_for_pack(uses_[static_cast<std::size_t>(i)].size_bytes)) throw std::bad_alloc();
  state_.weights.pin_bytes(*known.weight, uses_[static_cast<std::size_t>(i)]);
  const TierOff inner_calls_are_stock;
  const at::AutoDispatchBelowADInplaceOrView below;  // nothing here may become a view that autograd knows
  pack = call_.pack(i, candidate);
  const bool racing = forced_ || site_->state.load(std::memory_order_relaxed) == SiteState::kExploring;
  if (state_.weights.put(*known.weight, candidate, pack, racing)) return true;
  pack.reset();
  return false;
}

Readiness OpTrial::prepare(int candidate, Purpose purpose) noexcept {
  beside_ = true;
  racing_ = purpose == Purpose::kBeside;
  if (!passage_) passage_.emplace(state_.fork_gate);
  if (!*passage_) return Readiness::kNotNow;
  try {
    if (rounds_training(candidate) && !may_round_training()) return Readiness::kNotNow;
    if (!forced_ && rounds(candidate) && (call_.counts() || asks_for_ieee())) return Readiness::kNotNow;
    if (!racing_ && waits_for_check(candidate)) return Readiness::kNotNow;
    if (weight_count_ > 0 && !look_up()) return Readiness::kNotNow;
    Readiness verdict = verdict_of(candidate);
    if (verdict == Readiness::kReady) verdict = after_drift(candidate);
    if (verdict == Readiness::kNotNow || verdict == Readiness::kNever) return verdict;
    if (by_onednn(candidate) && !has_room(kRoomForKernels)) return Readiness::kNotNow;
    for (int i = 0; i < weight_count_; ++i) {
      if (!pack(i, candidate)) return Readiness::kNotNow;
    }
    return verdict;
  } catch (const std::exception& problem) {
    if (!out_of_memory(problem)) return Readiness::kNever;
    state_.weights.drop_all();
  }
  return Readiness::kNotNow;
}

bool OpTrial::run(int candidate) noexcept {
  try {
    RECORD_FUNCTION(candidate_name(candidate), c10::ArrayRef<const c10::IValue>{});  // costs a branch while no profiler runs
    const TierOff inner_calls_are_stock;
    const at::AutoDispatchBelowADInplaceOrView below;  // nothing here may become a view that autograd knows
    Packs packs{};
    for (std::size_t i = 0; i < packs.size(); ++i) {
      packs[i] = static_cast<const TensorPack*>(weights_[i].packs[static_cast<std::size_t>(candidate)].get());
    }
    Outputs result = call_.run(candidate, packs, state_.options.isa);
    const bool done = result.defined();
    if (done && racing_) call_.deliver_aside(result);
    results_[static_cast<std::size_t>(candidate)] = std::move(result);
    return done;
  } catch (const std::exception& problem) {
    // Whatever a candidate raises, stock answers the call on intact inputs.
    if (out_of_memory(problem)) state_.weights.drop_all();
  }
  return false;
}

void OpTrial::take(int candidate) noexcept {
  if (rounds_training(candidate)) state_.training.note_use(!call_.backward);
  delivered_ = false;
  outputs_ = std::move(results_[static_cast<std::size_t>(candidate)]);
}

bool OpTrial::verify(int candidate) noexcept {
  bool good = false;
  try {
    const Outputs& result = results_[static_cast<std::size_t>(candidate)];
    good = same_faces(outputs_, result) && call_.accurate(outputs_, result, candidate);
    if (weight_count_ == 0) {
      if (!good && rounds_training(candidate) && (site_->verdicts.load(std::memory_order_relaxed) >> candidate & 1u) != 0) {
        state_.training.note_failure();
      }
      site_->verdicts.fetch_or(1u << (good ? candidate : candidate + 16), std::memory_order_relaxed);
    }
    for (int i = 0; known_ && i < weight_count_; ++i) {
      state_.weights.set_verdict(*weights_[static_cast<std::size_t>(i)].weight, site_->number, candidate, good);
    }
    if (!good && known_) drop_packs(candidate);
  } catch (const std::exception&) {
    return false;
  }
  return good;
}

}  // namespace ipexrun::preload
