// How many operators a call is made of: what tracing it takes goes by that. Thread rule: any thread, each of which counts its own.
#pragma once

#include <cstdint>

namespace ipexrun::preload {

/// Counts this thread's operators from here on, those inside others too, which costs each some 50 ns.
void count_operators();
/// Operators of this thread since count_operators(), which ends with it; -1 where nothing was counted.
std::int64_t operators_counted();

}  // namespace ipexrun::preload
