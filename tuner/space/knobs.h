// Names that stand for options or variables: ours for what has no option of its own, and those of IPEX's hypertune.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/plan/machine.h"
#include "tuner/space/space.h"

namespace ipexrun::tuner {

/// What a value comes down to. Without both lists it changes nothing.
struct KnobEffect {
  std::vector<std::pair<std::string, std::string>> options;  ///< long option of ipexrun, value
  std::vector<std::pair<std::string, std::string>> env;
};

struct Knob {
  const char* name;
  const char* help;                  ///< one sentence for docs and --help
  bool ipex;                         ///< a name of IPEX's hypertune (hyperparams.launcher)
  std::vector<std::string> choices;  ///< in text; empty = whole numbers, -1 = left alone
  /// nullopt: not one of its values.
  std::optional<KnobEffect> (*effect)(const Value& value);
  /// The values it has when a file names it without any.
  std::vector<Value> (*default_values)(const launcher::Machine& machine);
};

const std::vector<Knob>& knobs();
const Knob* find_knob(const std::string& name);

/// "all_physical_cores" and "all_logical_cores": 1 to as many as this process may use. Empty for any other word.
std::vector<Value> core_counts(const std::string& word, const launcher::Machine& machine);

}  // namespace ipexrun::tuner
