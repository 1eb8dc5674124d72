#include "launcher/run/probe.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>

#include <array>
#include <chrono>

#include "configs/contract/env.h"
#include "launcher/run/malloc_exercise.h"
#include "launcher/run/posix.h"

namespace ipexrun::launcher {
namespace {

constexpr std::size_t kMaxOutput = 64u << 10;
constexpr int kPreloadTimeoutMs = 5000;  // of work that takes 30 ms: the machine may be busy
constexpr int kPauseMs = 2;

/// Reads what is there; false at the end of the pipe.
bool take(const Fd& pipe, std::string& text) {
  std::array<char, 4096> buffer;
  const ssize_t n = ::read(pipe.get(), buffer.data(), buffer.size());
  if (n <= 0) return n < 0 && errno == EINTR;
  if (text.size() < kMaxOutput) text.append(buffer.data(), static_cast<std::size_t>(n));
  return true;
}

/// Whether the child ended by itself before `deadline`; it is not reaped. ECHILD: the caller ignores SIGCHLD, so the kernel reaped it.
bool ended_by(pid_t pid, std::chrono::steady_clock::time_point deadline) {
  for (;;) {
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0) return errno == ECHILD;
    if (info.si_pid != 0) return true;
    if (std::chrono::steady_clock::now() >= deadline) return false;
    ::poll(nullptr, 0, kPauseMs);
  }
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (std::string& text : strings) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

}  // namespace

ProbeResult run_probe(const std::vector<std::string>& argv, const std::map<std::string, std::string>& env, int timeout_ms) {
  using Clock = std::chrono::steady_clock;
  ProbeResult result;
  std::vector<std::string> words = argv;
  std::vector<std::string> environment;
  for (const std::string& entry : env::all()) {
    if (!env.contains(entry.substr(0, entry.find('=')))) environment.push_back(entry);
  }
  for (const auto& [name, value] : env) environment.push_back(name + "=" + value);

  int out_ends[2];
  int err_ends[2];
  if (::pipe2(out_ends, O_CLOEXEC) != 0) return result;
  Fd out_read(out_ends[0]);
  Fd out_write(out_ends[1]);
  if (::pipe2(err_ends, O_CLOEXEC) != 0) return result;
  Fd err_read(err_ends[0]);
  Fd err_write(err_ends[1]);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out_write.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err_write.get(), STDERR_FILENO);
  // In a process group of its own, so that it can be ended with what it started.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  pid_t pid = 0;
  const int failure = ::posix_spawn(&pid, words[0].c_str(), &actions, &attributes, pointers(words).data(), pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) {
    result.errors = errno_text(failure);
    return result;
  }
  out_write.reset();
  err_write.reset();

  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  while (out_read.open() || err_read.open()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    std::array<pollfd, 2> fds{{{out_read.get(), POLLIN, 0}, {err_read.get(), POLLIN, 0}}};  // poll skips negative descriptors
    const int ready = left > 0 ? ::poll(fds.data(), fds.size(), static_cast<int>(left)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) break;
    if (fds[0].revents != 0 && !take(out_read, result.output)) out_read.reset();
    if (fds[1].revents != 0 && !take(err_read, result.errors)) err_read.reset();
  }
  result.ended = !out_read.open() && !err_read.open() && ended_by(pid, deadline);
  ::kill(-pid, SIGKILL);  // not reaped yet, so nobody else has the number; one that has ended itself keeps its exit code
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) {
      status = 0;  // the caller ignores SIGCHLD, so the kernel reaped the child: only its words can be judged
      break;
    }
  }
  result.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return result;
}

std::string probe_preload(const std::string& library, const std::string& also_loaded, bool is_allocator) {
  std::array<char, 4096> path{};
  if (::readlink("/proc/self/exe", path.data(), path.size() - 1) <= 0) return "/proc/self/exe cannot be read";
  std::vector<std::string> argv{path.data(), kMallocExerciseWord};
  if (!also_loaded.empty()) argv.push_back(also_loaded);
  const ProbeResult result = run_probe(argv, {{"LD_PRELOAD", library}}, kPreloadTimeoutMs);
  const std::string said = result.errors.substr(0, result.errors.find('\n'));
  if (!result.ended) return said.empty() ? "a program under it did not end" : said;
  // The loader's words ("cannot be preloaded", "static TLS block") say more than the exit code that follows.
  if (result.errors.find("ld.so") != std::string::npos || result.errors.find("static TLS") != std::string::npos) return said;
  if (result.exit_code > 128) {
    const char* name = ::sigdescr_np(result.exit_code - 128);
    return fmt::format("a program under it was ended by signal {} ({})", result.exit_code - 128, name != nullptr ? name : "unknown");
  }
  if (result.exit_code != 0)
    return fmt::format("a program under it ended with code {}{}", result.exit_code, said.empty() ? "" : ": " + said);
  if (result.output.find(kMallocExerciseDone) == std::string::npos) return "a program under it ended before it had done its work";
  if (is_allocator && result.output.find(kMallocOfLibc) != std::string::npos)
    return "it has no malloc: the program would keep the C library's";
  return "";
}

}  // namespace ipexrun::launcher
