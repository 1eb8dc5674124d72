// The checks of `ipexrun doctor`, each a line of its own.
#pragma once

#include <string>
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

/// All checks in the order in which they are printed. Starts short-lived children, among them one that imports torch when a plugin
/// for it is there.
std::vector<Check> all_checks(const Machine& machine);

/// What the instruction sets of this CPU and process promise, a paragraph of a few lines.
std::string gain_paragraph(const Machine& machine);

}  // namespace ipexrun::launcher
