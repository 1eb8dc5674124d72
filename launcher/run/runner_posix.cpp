#include <fcntl.h>
#include <unistd.h>

#include "launcher/run/log_rotation.h"
#include "launcher/run/logs.h"
#include "launcher/run/processes.h"
#include "launcher/run/runner.h"
#include "launcher/run/signals.h"
#include "launcher/run/start.h"
#include "launcher/run/supervisor.h"
#include "launcher/run/warden.h"

namespace ipexrun::launcher {
namespace {

/// A launcher that was itself started with a closed stdin, stdout or stderr must not have its own files land there. The place holders
/// are closed by execve: the program finds the descriptor closed, as it would without us.
void occupy_standard_descriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) (void)!::open("/dev/null", O_RDWR | O_CLOEXEC);
  }
}

class PosixRunner final : public Runner {
 public:
  Result<RunOutcome> run(const LaunchPlan& plan, const RunSettings& settings) override {
    if (plan.instances.empty()) return Error{kExitUsage, "the plan has no instance to start", ""};
    occupy_standard_descriptors();
    SignalScope signals;
    if (signals.fd() < 0) return Error{kExitFailure, "cannot read signals: " + errno_text(errno), ""};
    const Adoption adoption;
    const OwnGroup group(settings.warden);
    const FileLimit files;
    Starter starter(plan, settings, signals, files, group.callers());
    if (Status ready = starter.prepare(); !ready) return ready.error();
    if (Status started = starter.go(); !started) return started.error();
    remove_old_logs(plan.instances.front().log_path, settings.log_keep);
    Sink out(settings.quiet ? -1 : STDOUT_FILENO);
    return Supervisor(starter.running(), settings, signals, out, [&starter](std::size_t i) { return starter.restart(i); }).watch();
  }
};

}  // namespace

Runner& posix_runner() {
  static PosixRunner runner;
  return runner;
}

}  // namespace ipexrun::launcher
