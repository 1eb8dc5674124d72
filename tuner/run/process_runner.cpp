#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "launcher/cli/cli.h"
#include "launcher/machine/oom_kills.h"
#include "tuner/run/trial_runner.h"

namespace ipexrun::tuner {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostOutput = std::size_t{1} << 20;  // of an instance's log: the end of it
constexpr std::size_t kMostReport = std::size_t{64} << 20;
constexpr std::size_t kShownLines = 3;
constexpr int kOwnTimeLimit = 124;
constexpr double kGraceSeconds = 15;  // after the launcher should have ended everything by itself

std::string read_end(const fs::path& path, std::size_t most = kMostOutput) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return "";
  const auto size = static_cast<std::size_t>(file.tellg());
  std::string text(std::min(size, most), '\0');
  file.seekg(static_cast<std::streamoff>(size - text.size()));
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

/// By instance, from names such as run_20260102T030405_instance_3_cores_0-1.log.
std::vector<std::string> read_logs(const fs::path& folder) {
  std::map<int, std::string> by_instance;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    const std::size_t at = name.rfind("_instance_");
    if (at != std::string::npos) by_instance[std::atoi(name.c_str() + at + 10)] = read_end(entry.path());
  }
  std::vector<std::string> out;
  for (auto& [index, text] : by_instance) out.push_back(std::move(text));
  return out;
}

/// The last lines that say something.
std::string last_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);)
    if (line.find_first_not_of(" \t\r") != std::string::npos) lines.push_back(line.substr(0, 200));
  std::string out;
  for (std::size_t i = lines.size() > kShownLines ? lines.size() - kShownLines : 0; i < lines.size(); ++i)
    out += (out.empty() ? "" : "\n") + lines[i];
  return out;
}

struct Ended {
  int exit_code = 0;
  bool killed = false;  ///< by us, long after its time limit
  bool hopeless = false;
  bool stopped = false;  ///< the user asked for an end
};

/// Forks; the child is in a process group of its own and dies with this process. pid, or -errno.
pid_t start(const std::vector<std::string>& words, const std::string& errors, const StopSignals& signals) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));  // NOLINT: execv takes no const
  argv.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid != 0) return pid < 0 ? -errno : pid;
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);
  const int null = ::open("/dev/null", O_RDWR);
  const int err = ::open(errors.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
  ::dup2(null, STDIN_FILENO);
  ::dup2(null, STDOUT_FILENO);
  ::dup2(err >= 0 ? err : null, STDERR_FILENO);
  if (null > STDERR_FILENO) ::close(null);
  if (err > STDERR_FILENO) ::close(err);
  std::signal(SIGXFSZ, SIG_DFL);
  std::signal(SIGPIPE, SIG_DFL);  // ignored by hypertune alone
  signals.restore();
  ::execv(argv.front(), argv.data());
  ::_exit(127);
}

Ended await(pid_t pid, const RunRequest& request, StopSignals& signals) {
  Ended out;
  const Clock::time_point began = Clock::now();
  const auto after = [&](double seconds) {
    return began + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  };
  std::optional<Clock::time_point> term_at;
  std::optional<Clock::time_point> kill_at;
  if (request.timeout_s > 0) kill_at = after(request.timeout_s + kGraceSeconds);
  if (request.give_up_after_s > 0) term_at = after(request.give_up_after_s);
  launcher::Fd child(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  for (;;) {
    int status = 0;
    const pid_t got = ::waitpid(pid, &status, child.open() ? WNOHANG : 0);
    if (got == pid) {
      out.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      return out;
    }
    const Clock::time_point now = Clock::now();
    if (!out.stopped && signals.pending() != 0) {
      out.stopped = true;
      ::kill(pid, SIGTERM);
      kill_at = now + std::chrono::seconds(10);
    }
    if (out.stopped && signals.impatient()) kill_at = now;
    if (term_at && now >= *term_at) {
      out.hopeless = true;
      ::kill(pid, SIGTERM);
      term_at.reset();
      kill_at = now + std::chrono::seconds(10);
    }
    if (kill_at && now >= *kill_at) {
      out.killed = !out.stopped && !out.hopeless;
      ::kill(pid, SIGKILL);  // the launcher's other process sees it and ends what is below
      kill_at.reset();
    }
    pollfd entries[2] = {{child.get(), POLLIN, 0}, {signals.fd(), POLLIN, 0}};
    int wait_ms = 1000;
    for (const auto& at : {term_at, kill_at})
      if (at)
        wait_ms = static_cast<int>(
            std::clamp<std::int64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(*at - now).count() + 1, 0, wait_ms));
    ::poll(entries, signals.impatient() || out.stopped ? 1 : 2, wait_ms);
    if (out.stopped) signals.pending();
  }
}

Status prepare(const RunRequest& request) {
  std::error_code failure;
  fs::remove_all(request.folder, failure);
  fs::create_directories(request.folder, failure);
  if (failure) return Error{kExitFailure, "cannot make '" + request.folder + "': " + failure.message(), ""};
  const Result<launcher::Options> options = options_of(request.words);
  if (!options.ok()) return options.error();
  return launcher::save_config(*options, request.folder + "/config.yaml");
}

}  // namespace

std::vector<std::string> trial_command(const std::string& ipexrun, const RunRequest& request, const std::string& config) {
  std::vector<std::string> out = {ipexrun, "--config", config, "--log-dir", request.folder + "/logs"};
  if (request.timeout_s > 0) out.insert(out.end(), {"--timeout", text_of(Value(request.timeout_s))});
  if (request.bench) out.insert(out.end(), {"--bench-output", request.folder + "/bench.json"});
  if (request.bench_seconds > 0) out.insert(out.end(), {"--bench-seconds", text_of(Value(request.bench_seconds)), "--bench-stop"});
  const auto& options = request.words.options;
  if (std::find(options.begin(), options.end(), "--no-python") != options.end()) out.emplace_back("--no-python");
  if (request.words.program.front() != "-m") out.emplace_back("--");
  out.insert(out.end(), request.words.program.begin(), request.words.program.end());
  return out;
}

Result<RunReport> ProcessTrialRunner::run(const RunRequest& request) {
  if (Status ready = prepare(request); !ready.ok()) return ready.error();
  RunReport out;
  const CpuLock lock(cpus_, [&] { return signals_.pending() != 0; });
  if (!lock.taken()) {
    out.stopped = true;
    return out;
  }
  const auto oom_before = launcher::read_oom_kills("");
  const Clock::time_point began = Clock::now();
  const pid_t pid = start(trial_command(ipexrun_, request, request.folder + "/config.yaml"), request.folder + "/launcher.log", signals_);
  if (pid < 0) return Error{kExitFailure, "cannot start a process: " + launcher::errno_text(-pid), ""};
  const Ended ended = await(pid, request, signals_);
  out.seconds = std::chrono::duration<double>(Clock::now() - began).count();
  out.stopped = ended.stopped;
  out.exit_code = ended.exit_code;
  out.output.texts = read_logs(request.folder + "/logs");
  read_bench_report(read_end(request.folder + "/bench.json", kMostReport), &out.output);
  if (ended.stopped || ended.exit_code == 0) return out;
  const auto oom_after = launcher::read_oom_kills("");
  const std::string launcher_says = read_end(request.folder + "/launcher.log");
  if (ended.hopeless) {
    out.state = State::kPruned;
    out.why = "took longer than it could and still be good";
    return out;
  }
  if (ended.killed || (ended.exit_code == kOwnTimeLimit && request.timeout_s > 0 && out.seconds >= 0.9 * request.timeout_s)) {
    out.state = State::kTimeout;
    out.why = "ended at the time limit of " + text_of(Value(request.timeout_s)) + " s";
    return out;
  }
  const bool memory = ended.exit_code == 128 + SIGKILL && oom_before && oom_after && *oom_after > *oom_before;
  out.state = memory ? State::kOutOfMemory : ended.exit_code > 128 ? State::kCrashed : State::kFailed;
  const char* name = ended.exit_code > 128 ? ::sigabbrev_np(ended.exit_code - 128) : nullptr;
  out.why = memory            ? "ended by the kernel for want of memory"
            : name != nullptr ? std::string("ended by SIG") + name
                              : "exit code " + std::to_string(ended.exit_code);
  for (const std::string& text : out.output.texts) {
    const std::string said = last_lines(text);
    if (said.empty()) continue;
    out.why += "\n" + said;
    return out;
  }
  // A report says that the program ran: what the launcher wrote then is that report, and not why it failed.
  const bool reported = !read_end(request.folder + "/bench.json", 1).empty();
  if (const std::string said = last_lines(launcher_says); !said.empty() && !reported) out.why += "\n" + said;
  return out;
}

}  // namespace ipexrun::tuner
