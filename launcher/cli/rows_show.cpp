// Options that print, read or write plans and settings.
#include "launcher/cli/rows.h"

namespace ipexrun::launcher {

using namespace setters;  // NOLINT(google-build-using-namespace): the row builders

void add_show_rows(std::vector<OptionRow>& rows) {
  constexpr auto group = OptionGroup::kShow;
  rows.push_back(not_in_config(flag(
      "dry-run", group, [](auto& o) -> auto& { return o.dry_run; }, "print what would be started, and start nothing")));
  rows.push_back(not_in_config(flag(
      "json", group, [](auto& o) -> auto& { return o.json; },
      "with --dry-run, topology, env, doctor or explain-last: print JSON instead of a table")));
  rows.push_back(not_in_config(flag(
      "explain", group, [](auto& o) -> auto& { return o.explain; }, "say why each thing was chosen, then run")));
  rows.push_back(not_in_config(word(
      "topology", group, [](auto& o) -> auto& { return o.topology; }, "TEXT|FILE",
      "plan for a machine that is not there: \"node:2 core:28 pu:2\" or an hwloc XML file")));
  rows.push_back(not_in_config(word(
      "sysroot", group, [](auto& o) -> auto& { return o.sysroot; }, "DIR|FILE",
      "read limits (cgroups, /proc, /sys) below DIR, or from an archive of ipexrun gather, instead of /; to plan only")));
  OptionRow config = row("config", group, "FILE", "read options from a YAML file; the command line beats it");
  config.in_config = false;
  config.set = [](Options& options, const std::string& value) -> Status {
    if (value.empty()) return bad_value("config", "a file name", value);
    options.config = value;
    return ok_status();  // cli.cpp reads the file before it applies the command line
  };
  rows.push_back(std::move(config));
  rows.push_back(not_in_config(word(
      "save-config", group, [](auto& o) -> auto& { return o.save_config; }, "FILE",
      "write the options of this run to FILE, and at its end what selection found")));
}

}  // namespace ipexrun::launcher
