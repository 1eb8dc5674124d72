// The launcher's table of contents: command line -> command -> exit code. The only place of the launcher that prints errors and exits.
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "configs/base/log.h"
#include "configs/contract/env.h"
#include "launcher/cli/cli.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/last_run.h"
#include "launcher/machine/tree.h"
#include "launcher/run/context.h"
#include "launcher/run/doctor.h"
#include "launcher/run/gather_run.h"
#include "launcher/run/malloc_exercise.h"

namespace ipexrun::launcher {
namespace {

Result<int> dispatch(const Options& options, SupervisedRunner& runner) {
  switch (options.command) {
    case Command::kRun:
    case Command::kXpu:
      return run_program(options, runner);
    case Command::kTopology:
      return show_topology(options);
    case Command::kEnv:
      return options.docs ? print(env_docs()) : run_env(options);
    case Command::kDoctor:
      return run_doctor(options);
    case Command::kExplainLast:
      return explain_last(options);
    case Command::kGather:
      return run_gather(options);
    case Command::kVersion:
      return show_version(IPEXRUN_VERSION);
    case Command::kHelp:
      return print(help_text(options.help_of));
    case Command::kCompletion:
      return print(completion_text());
    case Command::kManPage:
      return print(man_page(IPEXRUN_VERSION));
    case Command::kTune:
    case Command::kAot:
      break;  // have become other programs by now
  }
  return static_cast<int>(kExitUsage);
}

/// `ipexrun tune ...` is the program hypertune beside this one, `ipexrun aot ...` is ipexrun-aot: the launcher knows nothing of the tuner
/// and of kernels. Returns only an error.
Error become(const char* name, char** argv) {
  std::error_code failure;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", failure);
  if (failure) return Error{kExitFailure, no_proc_text(), "mount -t proc proc /proc"};
  const std::string beside = (self.parent_path() / name).string();
  ++argv;
  argv[0] = const_cast<char*>(name);  // NOLINT: execv takes no const
  ::execv(beside.c_str(), argv);
  return Error{errno == ENOENT ? kExitNotFound : kExitNotExecutable, "cannot start '" + beside + "': " + std::strerror(errno),
               std::strcmp(name, "hypertune") == 0 ? "it is installed with ipexrun" : "a build without OpenCL headers has none"};
}

/// Commands that only show something say what is wrong instead of refusing to.
bool starts_programs(Command command) { return command == Command::kRun || command == Command::kXpu; }

Result<int> run_command_line(const std::vector<std::string>& args) {
  SupervisedRunner runner(posix_runner(), std::signal(SIGPIPE, SIG_IGN));
  Result<Options> options = parse_command_line(args);
  if (!options.ok()) return options.error();
  if (const std::string problem = env::problem_of_environment(); !problem.empty() && starts_programs(options->command))
    return Error{kExitUsage, problem, "unset it, or set one of these; ipexrun env --docs says what it does"};
  const Result<Sysroot> sysroot = Sysroot::open(options->sysroot);
  if (!sysroot.ok()) return sysroot.error();
  if (options->topology.empty())
    if (Status described = sysroot->check_describes_machine(); !described.ok()) return described.error();
  options->sysroot = sysroot->folder();
  Result<int> code = dispatch(*options, runner);
  if (code.ok() || code.error().code != kExitNotFound) return code;
  const std::string hint = hint_for_command(args, *options);
  return hint.empty() ? code : Result<int>(Error{kExitNotFound, code.error().what, hint});
}

}  // namespace
}  // namespace ipexrun::launcher

int main(int argc, char** argv) {
  using namespace ipexrun::launcher;  // NOLINT(google-build-using-namespace): this is its main()
  if (argc > 1 && std::strcmp(argv[1], kMallocExerciseWord) == 0) return exercise_malloc(argc > 2 ? argv[2] : nullptr);
  const std::string word = argc > 1 ? argv[1] : "";
  if (word == "tune" || word == "aot") {
    const ipexrun::Error failed = become(word == "tune" ? "hypertune" : "ipexrun-aot", argv);
    ipexrun::log::error(failed.line());
    return failed.code;
  }
  const ipexrun::Result<int> code = run_command_line(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
  if (!code.ok()) ipexrun::log::error(code.error().line());
  return code.ok() ? *code : code.error().code;
}
