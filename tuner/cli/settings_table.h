// Every option of `hypertune`, one row each: the parser, `tuning:` of a file, --help and the man page are made from this table.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "configs/base/result.h"
#include "tuner/cli/settings.h"

namespace ipexrun::tuner {

struct SettingRow {
  std::string name;     ///< long, with dashes
  std::string group;    ///< heading of --help
  std::string metavar;  ///< "" = a flag
  std::string help;
  bool in_file = true;                                       ///< a key of `tuning:` too
  std::function<Status(Settings&, const std::string&)> set;  ///< a flag gets "true" or "false"
};

const std::vector<SettingRow>& settings_table();

/// Dashes and underscores alike; nullptr when there is none.
const SettingRow* find_setting(std::string name);

/// The strategies by name.
const std::vector<std::string>& strategy_names();
/// Those that need no Optuna.
const std::vector<std::string>& native_strategy_names();

/// Takes the command line (without argv[0]) apart; reads no file. `before`: settings of a file, which the line beats.
Result<Settings> parse_tune_command(const std::vector<std::string>& args,
                                    const std::vector<std::pair<std::string, std::string>>& before = {});

std::string tune_help();
std::string tune_man_page(const std::string& version);

}  // namespace ipexrun::tuner
