// The settings file of --config and --save-config; its format is described in configs/contract/config.h.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "configs/base/result.h"
#include "launcher/cli/option_table.h"
#include "launcher/options.h"

namespace ipexrun::launcher {

struct ConfigFile {
  std::vector<std::pair<const OptionRow*, std::string>> entries;  ///< in the file's order; a list of names gives one entry a name
  std::map<std::string, std::string> env;
  std::vector<std::string> decisions;  ///< one JSON object each
};

/// Reads and checks a file. Every error is kExitUsage and one line that names the file and the line in it.
Result<ConfigFile> read_config(const std::string& path);

}  // namespace ipexrun::launcher
