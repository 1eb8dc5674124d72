#include "launcher/commands/common.h"

#include <cstdio>
#include <sstream>
#include <string>

#include "configs/base/log.h"
#include "launcher/machine/machine_devices.h"
#include "launcher/machine/tree.h"
#include "launcher/plan/show.h"

namespace ipexrun::launcher {

Result<Machine> machine_for(const Options& options) {
  Result<Machine> machine =
      options.topology.empty() ? read_machine(options.sysroot) : machine_from_topology(options.topology, options.sysroot);
  // Only where they are asked for: a large server has hundreds of PCI devices. A text or an XML file describes none.
  const bool wants_gpus = options.command == Command::kXpu || options.command == Command::kTopology;
  const bool has_place = options.topology.empty() || !options.sysroot.empty();
  if (machine.ok() && wants_gpus && has_place) machine->gpus = read_gpus(options.sysroot);
  return machine;
}

bool plans_only(const Options& options) { return options.dry_run || !options.topology.empty() || !options.sysroot.empty(); }

void say_notes(const Options& options) {
  for (const std::string& note : options.notes) log::warn(note);
}

void say_reasons(const LaunchPlan& plan, bool all) {
  std::istringstream lines(all ? reasons_text(plan) : "");
  for (std::string line; std::getline(lines, line);) std::fputs(("ipexrun: " + line + "\n").c_str(), stderr);
  for (const Reason& reason : plan.reasons)
    if (reason.warn && !all) log::warn(reason.text);
}

Result<int> with_time_limit(Result<int> code, bool timed_out) {
  if (!timed_out) return code;
  if (code.ok()) return static_cast<int>(kExitTimeLimit);
  return Error{kExitTimeLimit, code.error().what, code.error().hint};
}

}  // namespace ipexrun::launcher
