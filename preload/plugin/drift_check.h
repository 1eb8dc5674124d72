// One pass of the user's program, computed twice: by stock for the user, and beside it with candidates that round more than stock does.
//
// While a check runs, every op of its thread comes to a fallback of ours at a dispatch key that is otherwise unused: it runs the op as
// stock would, and again on shadows of its operands (shadows.h) with the candidates that selection chose. No code of the user runs twice.
// Only ops of aten are run again; random ones, those with gradients to record and other libraries' count as equal. select/drift.h decides
// when, and what follows.
#pragma once

#include <c10/util/FunctionRef.h>

#include "preload/plugin/op_call.h"

namespace ipexrun::preload {

/// Puts the fallback in place; once, at start. False when somebody else's stands there: drift is then not looked at, and not waited for.
bool register_drift_fallback();

/// Whether uses of this candidate at this site are to wait for a check at all.
bool drifts(const TierState& state, const Site& site, int candidate) noexcept;

/// This thread computes shadows: candidates answer where selection chose one, and nothing is measured.
bool drift_replaying() noexcept;
/// A candidate that drifts was used while replaying.
void drift_used(DriftMark& mark, std::shared_ptr<Weight> keeps);
/// One call of an op that has candidates is replayed; `mark` as below.
void drift_count_replayed(c10::function_ref<std::uint64_t()> mark);

/// After a call in the user's own run, while passes are looked for. `mark`: PassFinder's, not 0 for functional calls only. `result` is what
/// the user gets, `replay` computes what the choice would have given; without it (in-place and out= calls) no check begins here.
void drift_watch(TierState& state, std::uint64_t mark, bool pinned, const Outputs& result, c10::function_ref<Outputs()> replay);

}  // namespace ipexrun::preload
