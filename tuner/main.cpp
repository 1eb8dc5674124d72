// hypertune's table of contents: command line -> command -> exit code. The only place of the tuner that prints errors and exits.
#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include "configs/base/log.h"
#include "configs/contract/env.h"
#include "launcher/run/malloc_exercise.h"
#include "launcher/run/print.h"
#include "tuner/cli/settings_table.h"
#include "tuner/cli/tune.h"

namespace ipexrun::tuner {
namespace {

Result<int> print(const std::string& text) {
  const Status printed = launcher::print_text(text);
  return printed.ok() ? Result<int>(kExitOk) : Result<int>(printed.error());
}

Result<int> run_command_line(const std::vector<std::string>& args) {
  const Result<Settings> settings = parse_tune_command(args);
  if (!settings.ok()) return settings.error();
  const std::string problem = settings->command == TuneCommand::kTune ? env::problem_of_environment() : "";
  if (!problem.empty()) return Error{kExitUsage, problem, "unset it: ipexrun starts no trial with it"};
  switch (settings->command) {
    case TuneCommand::kTune:
      return run_tune(args);
    case TuneCommand::kReport:
      return run_report(*settings);
    case TuneCommand::kCompare:
      return run_compare(*settings);
    case TuneCommand::kHelp:
      return print(tune_help());
    case TuneCommand::kVersion:
      return print(std::string("hypertune ") + IPEXRUN_VERSION + "\n");
    case TuneCommand::kManPage:
      return print(tune_man_page(IPEXRUN_VERSION));
  }
  return static_cast<int>(kExitUsage);
}

}  // namespace
}  // namespace ipexrun::tuner

int main(int argc, char** argv) {
  using namespace ipexrun;  // NOLINT(google-build-using-namespace): this is its main()
  if (argc > 1 && std::strcmp(argv[1], launcher::kMallocExerciseWord) == 0) return launcher::exercise_malloc(argc > 2 ? argv[2] : nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of write(2), not the end
  const Result<int> code = tuner::run_command_line(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
  if (!code.ok()) log::error(code.error().line());
  return code.ok() ? *code : code.error().code;
}
