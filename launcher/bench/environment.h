// Where the numbers were made: what a reader needs to judge or repeat a measurement.
#pragma once

#include <string>
#include <vector>

#include "configs/contract/plan.h"
#include "launcher/bench/report.h"
#include "launcher/plan/machine.h"
#include "launcher/run/runner.h"

namespace ipexrun::launcher::bench {

/// Everything that is known before the run; reads /proc, /sys and the clock (the date). `process` is the PROCESS event's text of the
/// first instance that loaded torch.
std::vector<Fact> read_environment(const Options& options, const Machine& machine, const LaunchPlan& plan, const std::string& process);

/// "torch", "isa_used" and "torch_threads" from a PROCESS event's text; "" where the text does not say.
struct ProcessFacts {
  std::string torch;
  std::string isa;
  std::string threads;
};
ProcessFacts parse_process(const std::string& text);

/// The command line with shell quotes where needed.
std::string shell_quoted(const std::vector<std::string>& argv);

}  // namespace ipexrun::launcher::bench
