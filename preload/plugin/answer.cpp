#include "preload/plugin/answer.h"

#include <ATen/Context.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/Parallel.h>
#include <ATen/TracerMode.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <new>
#include <optional>

#include "preload/plugin/drift_check.h"
#include "preload/plugin/drift_switch.h"
#include "preload/plugin/losses.h"
#include "preload/plugin/op_trial.h"
#include "preload/plugin/tier.h"

namespace ipexrun::preload {
namespace {

std::atomic<int>& sites_of(Op op) noexcept {
  static constinit std::array<std::atomic<int>, kOpCount> counts{};
  return counts[static_cast<std::size_t>(op)];
}

/// Calls of one operator that come in ever other sizes (images of photographs that are made smaller) are as many kinds: an operator may
/// have half of as many sites as are left, so that there is room for the others that the program comes to. Where a candidate is forced
/// nothing is tried that others could miss.
bool has_room_for_site(const TierState& state, Op op) noexcept {
  if (tier_forced() != kStock) return !state.sites.full();
  return 2 * sites_of(op).load(std::memory_order_relaxed) < kMaxSites - state.sites.size();
}

/// Null where there is no room.
Site* insert(TierState& state, Op op, std::unique_ptr<Site> site) noexcept {
  Site* made = state.sites.insert(std::move(site));
  if (made != nullptr) sites_of(op).fetch_add(1, std::memory_order_relaxed);
  return made;
}

Site* site_of(TierState& state, const OpCall& call) noexcept {
  const SiteId id = call.site_id();
  if (Site* known = state.sites.find(id)) return known;
  if (!has_room_for_site(state, call.op)) return nullptr;
  try {
    auto site = std::make_unique<Site>();
    site->id = id;
    site->training = call.training;
    site->key = call.site_key(id, state.options).text();
    site->candidates = call.candidates(state.options);
    // bf16 moves half the bytes and multiplies at least twice as fast: where it wins clearly, fp32 products cannot win.
    site->needless_after_clear_win = 1u << kOnednnF32Packed | 1u << kMklF32Packed;
    site->must_beat_stock = state.options.dtype != DtypePolicy::kBfloat16 || !call.changes_dtype();
    recall(state, *site);
    return insert(state, call.op, std::move(site));
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

/// The site of calls that drift keeps from `of`'s choice: what does not round races there against stock. `of` where there is nothing else.
Site& exact_site(TierState& state, const OpCall& call, Site& of) noexcept {
  SiteId id = of.id;
  id.form |= kFormExact;
  if (Site* known = state.sites.find(id)) return known->candidates.empty() ? of : *known;
  if (!has_room_for_site(state, call.op)) return of;
  try {
    auto site = std::make_unique<Site>();
    site->id = id;
    SiteKey key = call.site_key(of.id, state.options);
    key.sizes += ",exact";
    site->key = key.text();
    for (const int candidate : of.candidates) {
      if (!drifts(state, of, candidate)) site->candidates.push_back(candidate);
    }
    recall(state, *site);
    Site* made = insert(state, call.op, std::move(site));
    return made == nullptr || made->candidates.empty() ? of : *made;
  } catch (const std::bad_alloc&) {
    return of;
  }
}

/// Where the call races and is answered: at its own site, or beside it.
Site& answering_site(TierState& state, const OpCall& call, Site& site, OpTrial& trial) {
  if (site.training || (!state.drift.keeps_some() && !drift_outside_modules())) [[likely]]
    return site;
  try {
    if (!trial.is_kept_from_choice()) return site;
  } catch (const std::bad_alloc&) {
    state.weights.drop_all();
    return site;
  }
  Site& exact = exact_site(state, call, site);
  trial.move_to(exact);
  return exact;
}

/// What the site's choice gives; stock where that is not ready.
Outputs replay(TierState& state, const OpCall& call, Site& site, c10::function_ref<Outputs()> stock,
               c10::function_ref<Outputs()> stock_aside) {
  const int choice = site.choice.load(std::memory_order_relaxed);
  OpTrial trial(state, call, site, false, stock, stock_aside);
  drift_count_replayed([&] { return trial.pass_mark(); });
  if (choice != kStock && trial.prepare(choice, Purpose::kAnswer) == Readiness::kReady && trial.run(choice)) {
    trial.note_replayed(choice);
    trial.take(choice);
  } else {
    trial.run_stock();
  }
  return std::move(trial).result();
}

}  // namespace

bool plain(const at::Tensor& tensor) {
  constexpr c10::DispatchKeySet kPlain(
      {c10::DispatchKey::CPU, c10::DispatchKey::AutogradCPU, c10::DispatchKey::ADInplaceOrView, c10::DispatchKey::AutocastCPU});
  return (tensor.key_set().raw_repr() & ~kPlain.raw_repr()) == 0 && tensor.has_storage();
}

bool in_backward(TierState& state) {
  const int task = torch::autograd::get_current_graph_task_id();
  if (task == -1) return false;
  if (state.last_backward.exchange(task, std::memory_order_relaxed) != task) {
    state.weights.saw_backward();
    state.training.begin_backward();
    // A pass that is recorded itself (create_graph). What is computed again for a checkpoint is recorded too, inside a pass that keeps no
    // graph.
    if (state.options.dtype == DtypePolicy::kAuto && c10::GradMode::is_enabled() && torch::autograd::get_current_graph_task_keep_graph()) {
      state.training.needs_exact("gradients of gradients are asked for");
    }
  }
  return true;
}

bool is_training(const OpCall& call, const at::Tensor& a, const at::Tensor& b) {
  if (call.backward) return true;
  return c10::GradMode::is_enabled() && (a.requires_grad() || b.requires_grad()) &&
         tier()->last_backward.load(std::memory_order_relaxed) != -1;
}

namespace {

/// Elements from all parts of the memory that a weight of float32 spans.
std::optional<TrainingGuard::Sample> sample_of(const at::Tensor& weight) {
  if (weight.scalar_type() != at::kFloat || weight.numel() == 0 || weight.storage().data() == nullptr) return std::nullopt;
  std::int64_t last = 0;
  for (std::int64_t dim = 0; dim < weight.dim(); ++dim) last += (weight.size(dim) - 1) * weight.stride(dim);
  if (static_cast<std::size_t>(weight.storage_offset() + last + 1) * sizeof(float) > weight.storage().nbytes()) return std::nullopt;
  TrainingGuard::Sample sample{};
  const float* first = weight.const_data_ptr<float>();
  const auto parts = static_cast<std::int64_t>(sample.size());
  for (std::int64_t i = 0; i < parts; ++i) sample[static_cast<std::size_t>(i)] = first[last * i / parts + last / (2 * parts)];
  return sample;
}

}  // namespace

std::optional<bool> weight_steps(const at::Tensor& weight) {
  if (!weight.requires_grad()) return std::nullopt;
  const at::TensorBase& owner = weight.is_view() ? weight._base() : weight;
  const c10::VariableVersion& version = weight.unsafeGetTensorImpl()->version_counter();
  if (!owner.is_leaf() || !version.enabled()) return std::nullopt;
  return tier()->training.saw_weight(owner.unsafeGetTensorImpl(), version.current_version(), sample_of(weight));
}

bool allowed_here() {
  const at::Context& context = at::globalContext();
  if (context.deterministicAlgorithms() || context.deterministicMkldnn() || !context.userEnabledMkldnn()) return false;
  if (at::in_parallel_region()) return false;
  // torch.jit.trace: some ops (convolution) are not recorded themselves but by what they call, which would be ours.
  return !at::tracer::impl::is_dispatch_enabled();
}

bool asks_for_ieee() {
  return takes_ratios() ||
         at::globalContext().float32Precision(at::Float32Backend::MKLDNN, at::Float32Op::MATMUL) == at::Float32Precision::IEEE;
}

bool can_be_filled(const at::Tensor& out, at::IntArrayRef sizes, at::ScalarType dtype) {
  return out.sizes() == sizes && out.scalar_type() == dtype && plain(out) && at::has_internal_overlap(out) == at::MemOverlap::No;
}

bool apart(const at::Tensor& a, const at::Tensor& b) { return at::get_overlap_status(a, b) == at::MemOverlapStatus::No; }

Outputs select_for(TierState& state, const OpCall& call, c10::function_ref<Outputs()> stock, c10::function_ref<Outputs()> stock_aside) {
  if (!drift_replaying()) count_call(state);
  if (call.backward && state.training.wants_look()) state.training.looked(call.gradients_finite());
  Site* site = site_of(state, call);
  if (site == nullptr || site->candidates.empty()) return stock();  // drift_watch() does not see it, so a check does not count it
  if (drift_replaying()) return replay(state, call, *site, stock, stock_aside);
  const int forced = tier_forced();
  if (forced != kStock) {
    const auto& fitting = site->candidates;
    if (std::find(fitting.begin(), fitting.end(), forced) == fitting.end()) return stock();
    OpTrial trial(state, call, *site, true, stock, stock_aside);
    state.selector.call_forced(*site, trial, forced);
    return std::move(trial).result();
  }
  const auto watched = [&] {
    return !site->training && state.drift.watching(state.calls.load(std::memory_order_relaxed)) &&
           torch::autograd::get_current_graph_task_id() == -1;
  };
  if (!watched() && state.selector.leaves_to_stock(*site)) return stock();
  OpTrial trial(state, call, *site, false, stock, stock_aside);
  state.selector.call(answering_site(state, call, *site, trial), trial);
  if (!watched()) [[likely]]
    return std::move(trial).result();
  const std::uint64_t mark = trial.pass_mark();
  Outputs result = std::move(trial).result();
  const auto again = [&] { return replay(state, call, *site, stock, stock_aside); };
  drift_watch(state, mark, site->pinned, result, again);
  return result;
}

}  // namespace ipexrun::preload
