// Options of logs.
#include "launcher/cli/rows.h"

namespace ipexrun::launcher {

using namespace setters;  // NOLINT(google-build-using-namespace): the row builders

void add_log_rows(std::vector<OptionRow>& rows) {
  constexpr auto group = OptionGroup::kLogs;
  rows.push_back(with_aliases(
      word(
          "log-dir", group, [](auto& o) -> auto& { return o.log_dir; }, "DIR", "write each instance's output to a file of its own in DIR"),
      {"log-path"}));
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
}

}  // namespace ipexrun::launcher
