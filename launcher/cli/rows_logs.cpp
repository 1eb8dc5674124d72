// Options of supervision and logs.
#include "launcher/cli/rows.h"

namespace ipexrun::launcher {

using namespace setters;  // NOLINT(google-build-using-namespace): the row builders

namespace {

constexpr int kMostRestarts = 1'000'000;
constexpr int kMostRuns = 1'000'000;
constexpr double kMostSeconds = 1e8;

}  // namespace

void add_log_rows(std::vector<OptionRow>& rows) {
  constexpr auto group = OptionGroup::kLogs;
  rows.push_back(number<int>(
      "max-restarts", group, [](auto& o) -> auto& { return o.max_restarts; }, 0, kMostRestarts,
      "start an instance that failed again, at most so often, after 1, 2, 4, ... 30 s"));
  rows.push_back(number<double>(
      "timeout", group, [](auto& o) -> auto& { return o.timeout_seconds; }, 0.0, kMostSeconds,
      "end the whole run after so many seconds, with exit code 124", "SECONDS"));
  OptionRow folder = with_aliases(word(
                                      "log-dir", group, [](auto& o) -> auto& { return o.log_dir; }, "DIR",
                                      "write each instance's output to a file of its own in DIR ('': none)"),
                                  {"log-path"});
  folder.set = [](Options& options, const std::string& value) -> Status {
    options.log_dir = value;  // empty, as scripts for IPEX's launcher have it: no logs
    return ok_status();
  };
  rows.push_back(std::move(folder));
  OptionRow prefix = word(
      "log-file-prefix", group, [](auto& o) -> auto& { return o.log_file_prefix; }, "NAME",
      "first part of the log files' names (default run)");
  prefix.set = [](Options& options, const std::string& value) -> Status {
    if (value.empty() || value.find('/') != std::string::npos)
      return bad_value("log-file-prefix", "a file name without '/'", value, "--log-dir names the folder");
    options.log_file_prefix = value;
    return ok_status();
  };
  rows.push_back(std::move(prefix));
  rows.push_back(number<int>(
      "log-keep", group, [](auto& o) -> auto& { return o.log_keep; }, 0, kMostRuns,
      "keep the log files of the newest N runs of that prefix, this one included, and remove older ones"));
}

}  // namespace ipexrun::launcher
