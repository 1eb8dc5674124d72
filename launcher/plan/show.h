// The plan, the machine and the reasons as text (tables for a terminal) and JSON. No decision is made here.
#pragma once

#include <string>

#include "configs/contract/plan.h"
#include "launcher/plan/machine.h"

namespace ipexrun::launcher {

std::string plan_table(const LaunchPlan& plan);
std::string plan_json(const LaunchPlan& plan);
/// --explain: one aligned line a Reason.
std::string reasons_text(const LaunchPlan& plan);
/// `ipexrun topology`, and its --json form.
std::string machine_text(const Machine& machine);
std::string machine_json(const Machine& machine);
/// A word as a shell would need it, so that a command line can be copied.
std::string shell_quoted(const std::string& word);
/// "0-3,8" for {0,1,2,3,8}; "" for none. parse_cpu_list is its inverse (kExitUsage on bad text).
std::string cpu_list_text(const std::vector<int>& cpus);
Result<std::vector<int>> parse_cpu_list(const std::string& text);

}  // namespace ipexrun::launcher
