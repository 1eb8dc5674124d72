// Command line (CLI11), config file and environment -> Options.
#pragma once

#include <string>
#include <vector>

#include "configs/base/result.h"
#include "launcher/options.h"

namespace ipexrun::launcher {

/// Parses `args` (without argv[0]). Everything after PROGRAM belongs to PROGRAM; a subcommand counts only as the first word; no
/// abbreviated options; an unknown option's error names the nearest known one. Reads the --config file if one is named.
Result<Options> parse_command_line(const std::vector<std::string>& args);

/// For a PROGRAM that there is not: "did you mean ipexrun topology?" where it stands first and is nearly the name of a command; else "".
std::string hint_for_command(const std::vector<std::string>& args, const Options& options);

/// The text of `ipexrun --help` (or of a subcommand's), with examples and the table of environment variables.
std::string help_text(Command command);

/// docs/env-vars.md, made from configs/contract/env_vars.def.
std::string env_docs();

/// A bash completion script, and the man page in roff, made from the option table.
std::string completion_text();
std::string man_page(const std::string& version);

/// The words with which an engine has to call ipexrun for each rank of this job: "--as-rank", the options that hold for a rank, PROGRAM
/// and its arguments.
std::vector<std::string> rank_arguments(const Options& options);

/// The options that differ from the defaults in the form of a config file, without a comment.
std::string config_text(const Options& options);

/// Writes the options of this run that differ from the defaults as a config file (configs/contract/config.h).
Status save_config(const Options& options, const std::string& path);

}  // namespace ipexrun::launcher
