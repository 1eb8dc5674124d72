// What is said of an instance that a signal ended: which one, what it said last, and where to look next.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/run/runner.h"

namespace ipexrun::launcher {

/// At most `most` last lines of a file, each of a bounded length and free of control characters; of a line that a progress bar wrote again
/// and again, what stood there last.
std::vector<std::string> last_lines(const std::string& path, std::size_t most);

/// Lines without prefix, the first one naming the instance. `last` is what it said last.
std::vector<std::string> crash_lines(const InstanceOutcome& outcome, const std::vector<std::string>& last, const CrashSurroundings& around);

/// `oom_kills_before`: read_oom_kills() when the run began.
CrashSurroundings read_crash_surroundings(std::optional<long> oom_kills_before);

}  // namespace ipexrun::launcher
