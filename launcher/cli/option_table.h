// Every option of `ipexrun`, one row each: the parser, the config file, --save-config, --help, shell completion, the man page and
// "did you mean" are all made from this table.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "configs/base/result.h"
#include "configs/contract/env.h"
#include "launcher/options.h"

namespace ipexrun::launcher {

/// Headings of --help, in this order.
enum class OptionGroup { kInstances, kProcess, kRanks, kLogs, kShow, kBench, kXpu, kDoctor, kCompatible, kLater };

struct OptionRow {
  std::string name;                  ///< long name with dashes, without the two in front; also the key in a config file
  std::vector<std::string> aliases;  ///< further long names; the underscore form of every name is accepted as well
  OptionGroup group = OptionGroup::kInstances;
  std::string metavar;               ///< what --help shows as its value; "" = a flag, which takes none
  std::vector<std::string> choices;  ///< the only values allowed; empty = any
  std::optional<env::Id> variable;   ///< of choices: the variable that says the same where the option is not given
  bool in_config = true;             ///< false: makes no sense in a file (--dry-run, --config, names kept for compatibility)
  std::string help;
  /// Stores one value; a flag gets "true" or (only from a file) "false". The error names the option and the value seen.
  std::function<Status(Options&, const std::string&)> set;
  /// The values to be written to a config file; empty = the default.
  std::function<std::vector<std::string>(const Options&)> get;

  [[nodiscard]] bool is_flag() const { return metavar.empty(); }

  /// As get(), and the default too where it was asked for and a variable could say otherwise.
  [[nodiscard]] std::vector<std::string> values_to_keep(const Options& options) const;
};

const std::vector<OptionRow>& option_table();

/// The heading of a group.
std::string_view group_title(OptionGroup group);

/// By long name or alias, dashes and underscores alike; nullptr when there is none. No abbreviations.
const OptionRow* find_option(std::string_view long_name);

/// The known word nearest to `word` (edit distance, at most a third of its length); "" when nothing is near.
std::string nearest_word(std::string_view word, const std::vector<std::string>& known);

/// All long names and aliases in dash form.
std::vector<std::string> option_names();

}  // namespace ipexrun::launcher
