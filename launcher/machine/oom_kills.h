// What the kernel has ended for want of memory.
#pragma once

#include <optional>
#include <string>

namespace ipexrun::launcher {

/// How many processes of this process's memory cgroup so far; where that is not counted, of the whole machine. nullopt = not readable.
std::optional<long> read_oom_kills(const std::string& sysroot);

}  // namespace ipexrun::launcher
