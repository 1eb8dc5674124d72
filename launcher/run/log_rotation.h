// --log-keep: the log files of older runs go, so that a folder does not fill up over the months.
#pragma once

#include <optional>
#include <string>

namespace ipexrun::launcher {

/// The parts of a log file's name, PREFIX_<time>_instance_<i>_cores_<list>[.N].log, that tell its run.
struct LogName {
  std::string prefix;
  std::string stamp;  ///< "20261121T101500"
};

/// nullopt when `name` (without folder) is not exactly of that form.
std::optional<LogName> parse_log_name(const std::string& name);

/// Removes the files of all but the newest `keep` runs that share folder and prefix with `own_path`, whose run counts as one. A file that
/// is still written to, is no regular file or has a name of any other form stays. Returns how many were removed.
int remove_old_logs(const std::string& own_path, int keep);

}  // namespace ipexrun::launcher
