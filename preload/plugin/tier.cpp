#include "preload/plugin/tier.h"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>
#include <string>

#include "configs/base/log.h"
#include "configs/contract/env.h"
#include "preload/memory/room.h"
#include "preload/plugin/drift_switch.h"
#include "preload/plugin/parallel.h"
#include "preload/plugin/scratch.h"
#include "preload/plugin/tier_state.h"

namespace ipexrun::preload {
namespace {

constinit std::atomic<TierState*> the_tier{nullptr};
constinit thread_local bool enabled_here = true;
constinit thread_local int guards_here = 0;
constinit thread_local int forced_here = kStock;

struct CandidateRow {
  int number;
  const char* name;
  bool bf16;
};

constexpr CandidateRow kCandidates[] = {
#define f32 false
#define bf16 true
#define IPEXRUN_CANDIDATE(id, number, name, inside) {number, name, inside},
#include "preload/plugin/candidates.def"
#undef IPEXRUN_CANDIDATE
#undef bf16
#undef f32
};
static_assert(std::ranges::all_of(kCandidates, [](const CandidateRow& row) { return row.number > kStock && row.number < kMaxCandidates; }));

WeightLimits read_limits() {
  WeightLimits limits;
  if (const auto asked = env::get_bytes(env::Id::kPackMemory)) {
    limits.hard_bytes = *asked;
    limits.bounded_by_weights = false;
  } else {
    const auto instances = static_cast<std::uint64_t>(std::max<std::int64_t>(env::get_int(env::Id::kInstances).value_or(1), 1));
    limits.hard_bytes = available_memory_bytes() / 4 / instances;
  }
  limits.always_full_check = env::get(env::Id::kPackCheck).value_or("sample") == "full";
  limits.pool = torch_pool;
  return limits;
}

DtypePolicy read_dtype() {
  const std::string word = env::get(env::Id::kDtype).value_or("auto");
  if (word == "float32") return DtypePolicy::kFloat32;
  if (word == "bfloat16") return DtypePolicy::kBfloat16;
  if (word == "float16") {
    // On device xpu it is meant for that one's kernels.
    if (!env::get_flag(env::Id::kXpuStart))
      log::once(log::Level::kWarn, "dtype float16",
                "dtype float16: programs in float32 are not computed in float16, float32 is used (try --dtype auto)");
    return DtypePolicy::kFloat32;
  }
  if (word != "auto")
    log::once(log::Level::kWarn, "dtype unknown",
              "IPEXRUN_DTYPE='" + word + "' is unknown, auto is used (auto, float32, bfloat16, float16)");
  return DtypePolicy::kAuto;
}

// Before a fork no candidate is under way (it may want the locks), and then these are taken, in this order: weights, decisions. (Sites are
// lock-free and a race holds no lock.)
void before_fork() {
  tier()->fork_gate.close(steady_clock());
  tier()->weights.lock_for_fork();
  tier()->decisions.lock_for_fork();
}
void after_fork_in_parent() {
  tier()->decisions.unlock_after_fork();
  tier()->weights.unlock_after_fork();
  tier()->fork_gate.open_in_parent();
}
void after_fork_in_child() {
  tier()->decisions.unlock_after_fork();
  tier()->decisions.stop_writing();
  tier()->weights.unlock_after_fork();
  tier()->weights.become_read_only();
  tier()->selector.stop_exploring();
  drift_forget_after_fork();
  scratch_forget_after_fork();
  tier()->fork_gate.open_in_child();
}

/// Packs of candidates that no site uses for weights of this size any more. Those that have lost a race go before the next one begins:
/// there is room for two beside each other, and a third would wait for ever.
void drop_losing_packs(TierState& state, const Site& raced) {
  std::uint32_t keep = 0;
  state.sites.for_each([&](const Site& site) {
    if (site.id.n != raced.id.n || site.id.k != raced.id.k) return;
    keep |= needed_candidates(site);
  });
  constexpr std::uint32_t kDtypeBits = 0xff;
  state.weights.drop_losers(raced.id.k, raced.id.n, static_cast<int>(raced.id.form & kDtypeBits), keep);
}

/// What another process may start from: the outcome of a race. Accuracy is nobody's to hand on.
void remember(TierState& state, const Site& site) {
  const std::string_view reason = site.reason.load();
  if (reason != "faster" && reason != "slower" && reason != "rolled back") return;
  if (site.rematch_at.load() != 0) return;  // lost on a busy machine: not yet certain enough to tell others
  try {
    Decision decision;
    if (!parse_site_key(site.key, &decision.site)) return;
    decision.choice = candidate_name(site.choice.load());
    decision.stock_ns = site.stock_ns.load();
    decision.choice_ns = site.choice_ns.load();
    decision.samples = site.samples.load();
    decision.reason = reason;
    decision.dtype = dtype_name(state.options.dtype);
    decision.decided_at = std::time(nullptr);
    state.decisions.remember(decision);
  } catch (const std::bad_alloc&) {
    // The next process measures again.
  }
}

void on_race_over(Site& site) { drop_losing_packs(*tier(), site); }

void on_decision(Site& site) {
  TierState& state = *tier();
  drop_losing_packs(state, site);
  remember(state, site);
  write_site_event(site);
  if (state.options.dtype == DtypePolicy::kBfloat16 && std::strcmp(site.reason.load(), "inaccurate") == 0) {
    log::warn("bfloat16 is not accurate enough at " + site.key + ": stock is used there");
  }
}

}  // namespace

const char* candidate_name(int candidate) noexcept {
  for (const CandidateRow& row : kCandidates) {
    if (row.number == candidate) return row.name;
  }
  return "stock";
}

int candidate_number(std::string_view name) noexcept {
  for (const CandidateRow& row : kCandidates) {
    if (name == row.name) return row.number;
  }
  return kStock;
}

bool candidate_is_bf16(int candidate) noexcept {
  for (const CandidateRow& row : kCandidates) {
    if (row.number == candidate) return row.bf16;
  }
  return false;
}

TierOptions read_tier_options(std::uint64_t torch_version) {
  TierOptions options;
  options.optimize = env::get(env::Id::kMode).value_or("optimize") != "observe";
  options.dtype = read_dtype();
  options.select.timing = env::get(env::Id::kSelect).value_or("on") != "off";
  options.select.thorough = env::get(env::Id::kSelect).value_or("on") == "thorough";
  options.weights = read_limits();
  if (const auto forced = env::get(env::Id::kForce)) {
    options.forced = candidate_number(*forced);
    if (options.forced == kStock) log::warn("IPEXRUN_FORCE='" + *forced + "' names no candidate, ignored");
  }
  options.isa = isa_of_process();
  options.torch_minor = std::to_string(torch_version >> 56) + '.' + std::to_string(torch_version >> 48 & 0xff);
  return options;
}

TierState::TierState(TierOptions from)
    : options(std::move(from)),
      weights(steady_clock(), options.weights),
      decisions(options.select.timing ? cache_place() : CachePlace{}),
      selector(steady_clock(), options.select, on_decision, on_race_over),
      forced(options.forced) {}

const char* dtype_name(DtypePolicy policy) noexcept {
  switch (policy) {
    case DtypePolicy::kFloat32:
      return "float32";
    case DtypePolicy::kBfloat16:
      return "bfloat16";
    case DtypePolicy::kAuto:
      break;
  }
  return "auto";
}

void recall(TierState& state, Site& site) {
  state.decisions.load(std::time(nullptr));
  Decision decision;
  bool pinned = false;
  if (!state.decisions.find(site.key, dtype_name(state.options.dtype), &decision, &pinned)) return;
  const int choice = candidate_number(decision.choice);
  const auto& fitting = site.candidates;
  const bool known = decision.choice == "stock" || std::find(fitting.begin(), fitting.end(), choice) != fitting.end();
  if (!known) {  // a candidate that this build or this call does not have: measured as if nothing were remembered
    if (pinned)
      log::warn("the config's choice '" + decision.choice + "' for " + site.key +
                " is not used: there is none of that name for such calls here");
    return;
  }
  settle(site, choice, decision, pinned);
  write_site_event(site);
}

TierState* tier() noexcept { return the_tier.load(std::memory_order_acquire); }

TierState& tier_create(TierOptions options) {
  if (TierState* known = tier()) return *known;
  auto* state = new TierState(std::move(options));
  state->training.on_leave([](const char* reason) { log::warn(std::string("training: float32 from here on: ") + reason); });
  if (const auto pinned = env::get(env::Id::kDecisions))
    state->decisions.load_pinned(*pinned, level_name(state->options.isa), state->options.torch_minor);
  the_tier.store(state, std::memory_order_release);
  ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  std::atexit(write_exit_events);
  return *state;
}

bool tier_enabled() noexcept { return enabled_here && guards_here == 0; }
void tier_set_enabled(bool on) noexcept { enabled_here = on; }

TierOff::TierOff() noexcept { ++guards_here; }
TierOff::~TierOff() { --guards_here; }

bool tier_force(const std::string& candidate) {
  TierState* state = tier();
  const int number = candidate_number(candidate);
  if (state == nullptr || (number == kStock && !candidate.empty())) return false;
  state->forced.store(number, std::memory_order_relaxed);
  return true;
}

bool tier_force_here(const std::string& candidate) {
  const int number = candidate_number(candidate);
  if (tier() == nullptr || (number == kStock && !candidate.empty())) return false;
  forced_here = number;
  return true;
}

int tier_forced() noexcept { return forced_here != kStock ? forced_here : tier()->forced.load(std::memory_order_relaxed); }

std::uint64_t exploration_count() noexcept {
  const TierState* state = tier();
  return state == nullptr ? 0 : state->selector.explorations();
}

std::uint64_t exploration_ns() noexcept {
  const TierState* state = tier();
  return state == nullptr ? 0 : static_cast<std::uint64_t>(state->selector.beside_ns());
}

EventWriter& events() {
  static auto* writer = [] {
    auto* made = new EventWriter;
    if (const auto path = env::get(env::Id::kEvents)) made->open(*path);
    return made;
  }();
  return *writer;
}

}  // namespace ipexrun::preload
