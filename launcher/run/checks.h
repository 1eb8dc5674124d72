// The checks of `ipexrun doctor`, each a line of its own.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launcher/plan/machine.h"

namespace ipexrun::launcher {

enum class CheckLevel { kOk, kWarn, kFail };

struct Check {
  CheckLevel level = CheckLevel::kOk;
  std::string name;  ///< "shim", "torch", ...
  std::string seen;  ///< what was found
  std::string hint;  ///< what to do about it; "" = nothing
};

struct Examined {
  std::vector<Check> checks;                               ///< in the order in which they are printed
  std::vector<std::pair<std::string, std::string>> facts;  ///< for programs: "torch_version", "plugin_isa", ...
};

/// All checks, for programs of the interpreter `python` (absolute path; "" = there is none). Starts short-lived children, among them one
/// that imports torch when a plugin for it is there.
Examined examine(const Machine& machine, const std::string& python);

}  // namespace ipexrun::launcher
