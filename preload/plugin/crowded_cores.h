// While others use the cores, torch's OpenMP threads sleep when they wait instead of looping (preload/select/crowding.h decides when).
#pragma once

#include <string>

namespace ipexrun::preload {

/// Begins to watch, once a process; called while torch's threads are at work. Nothing where there is nothing to gain or to see: one
/// thread, another runtime than GNU's, a kernel that does not tell how long threads waited, IPEXRUN_WAITING=off. Any thread.
void watch_cores() noexcept;

/// {"times": .., "now": true | false}; {} where nobody watches.
std::string crowded_cores_json();

}  // namespace ipexrun::preload
