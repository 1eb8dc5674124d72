// One function a command of `ipexrun`: command line and machine in, exit code or Error out. What they print besides is theirs; errors are
// main's to print.
#pragma once

#include "configs/base/result.h"
#include "launcher/options.h"
#include "launcher/run/supervised_runner.h"

namespace ipexrun::launcher {

/// `ipexrun PROGRAM`, `ipexrun xpu PROGRAM`: plans and prints, runs or measures. A job of ranks is handed to run_job().
Result<int> run_program(const Options& options, SupervisedRunner& runner);

/// A job of ranks: an engine starts this program again, once a rank, with --as-rank.
Result<int> run_job(const Options& options, SupervisedRunner& runner);

/// `ipexrun topology`.
Result<int> show_topology(const Options& options);

/// `ipexrun --version`.
Result<int> show_version(const char* version);

/// print_text() (run/print.h) as a command.
Result<int> print(const std::string& text);

}  // namespace ipexrun::launcher
