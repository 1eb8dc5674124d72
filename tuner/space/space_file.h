// A file of --conf-file: settings, objectives and the search space, in our form or in that of IPEX's hypertune.
#pragma once

#include <string>
#include <vector>

#include "configs/base/result.h"
#include "launcher/plan/machine.h"
#include "tuner/objective/objective.h"
#include "tuner/space/space.h"

namespace ipexrun::tuner {

struct SpaceFile {
  Space space;
  bool has_space = false;                                   ///< it had `space:` or `hyperparams:`
  bool old_form = false;                                    ///< `hyperparams:`, as IPEX's hypertune has it
  std::vector<std::pair<std::string, std::string>> tuning;  ///< keys with dashes and values, checked to be known
  std::vector<Objective> objectives;
  std::vector<Constraint> constraints;
  std::string output_dir;
};

/// Reads and checks it. Every error is kExitUsage and one line that names the file, the line and the key.
Result<SpaceFile> read_space_file(const std::string& path, const launcher::Machine& machine);

/// The same from text; `path` only names it.
Result<SpaceFile> parse_space_file(const std::string& text, const std::string& path, const launcher::Machine& machine);

/// --set NAME=VALUES: values separated by commas, "1..64" a range of whole numbers, "1..64*" a log range, "0.1..2.0" numbers.
Result<Parameter> parse_set(const std::string& name, const std::string& values, const launcher::Machine& machine);

}  // namespace ipexrun::tuner
