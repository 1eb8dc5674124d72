// What the op tier of this process holds. Made once by tier_create(), never destroyed: user threads may run during exit.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "configs/base/isa.h"
#include "preload/select/decision_cache.h"
#include "preload/select/drift.h"
#include "preload/select/fork_gate.h"
#include "preload/select/selector.h"
#include "preload/select/site.h"
#include "preload/select/training_guard.h"
#include "preload/select/weights.h"

namespace ipexrun::preload {

enum class DtypePolicy { kAuto, kFloat32, kBfloat16 };

/// The numbers of the candidates; 0 is stock. Names and needs are in candidates.def.
enum Candidate : int {
#define IPEXRUN_CANDIDATE(id, number, name, inside) id = number,
#include "preload/plugin/candidates.def"
#undef IPEXRUN_CANDIDATE
};

const char* candidate_name(int candidate) noexcept;
/// 0 when there is none of that name.
int candidate_number(std::string_view name) noexcept;
/// Computes in bf16 inside (else in fp32).
bool candidate_is_bf16(int candidate) noexcept;

struct TierOptions {
  bool optimize = true;
  DtypePolicy dtype = DtypePolicy::kAuto;
  SelectorOptions select;
  WeightLimits weights;
  int forced = kStock;
  IsaSet isa = 0;
  std::string torch_minor;  ///< "2.13"
};

/// Reads the environment; warns about words it does not know.
TierOptions read_tier_options(std::uint64_t torch_version);

struct TierState {
  explicit TierState(TierOptions from);

  const TierOptions options;
  SiteTable sites;
  WeightTable weights;
  DecisionCache decisions;
  Selector selector;
  DriftLedger drift;
  ForkGate fork_gate;
  TrainingGuard training;
  std::atomic<int> forced;
  std::atomic<std::uint64_t> calls{0};
  std::atomic<int> last_backward{-1};  ///< autograd's number of the backward pass that was seen last
};

/// "auto", "float32", "bfloat16".
const char* dtype_name(DtypePolicy policy) noexcept;

/// Decides a new site as the config or an earlier process did, if one of them knows it.
void recall(TierState& state, Site& site);

/// Null before start.
TierState* tier() noexcept;
/// Makes it, with fork handlers and the exit handler.
TierState& tier_create(TierOptions options);

/// Counts a call that came to an adapter and, now and then, writes the totals.
void count_call(TierState& state) noexcept;
void write_process_event(std::string_view text) noexcept;
void write_site_event(Site& site) noexcept;
void write_totals(TierState& state, bool with_ops) noexcept;
/// Sites, totals and the mark of an orderly end.
void write_exit_events() noexcept;

}  // namespace ipexrun::preload
