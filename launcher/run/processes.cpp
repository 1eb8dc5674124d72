#include "launcher/run/processes.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>

#include "launcher/machine/text_files.h"
#include "launcher/run/posix.h"

namespace ipexrun::launcher {
namespace {

constexpr int kPasses = 400;
constexpr int kPauseMs = 5;

/// /proc/PID/stat. The name in parentheses may itself contain blanks, parentheses and line ends.
std::optional<Process> parse_stat(pid_t pid, const std::string& text) {
  const std::size_t name_end = text.rfind(") ");
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 2));
  Process out;
  out.pid = pid;
  char state = 0;
  long skipped = 0;
  fields >> state >> out.parent >> skipped >> out.session;
  for (int field = 7; field <= 21; ++field) fields >> skipped;  // numbered as in proc(5)
  fields >> out.started;
  if (!fields) return std::nullopt;
  out.zombie = state == 'Z' || state == 'X';
  return out;
}

std::optional<Process> read_process(const std::string& proc, pid_t pid) {
  // Of a process that ends between open and read the kernel gives no text but ESRCH.
  const auto text = whole_file(proc + "/" + std::to_string(pid) + "/stat");
  return text ? parse_stat(pid, *text) : std::nullopt;
}

/// Never signals another process that got the number in the meantime.
void kill_process(const Process& process) {
#ifdef SYS_pidfd_open
  const Fd handle(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
  if (handle.open()) {
    const auto now = read_process("/proc", process.pid);
    if (now && now->started == process.started) ::syscall(SYS_pidfd_send_signal, handle.get(), SIGKILL, nullptr, 0);
    return;
  }
  if (errno == ESRCH) return;
#endif
  ::kill(process.pid, SIGKILL);  // a kernel before 5.3, or a filter
}

}  // namespace

std::vector<Process> read_processes(const std::string& proc) {
  std::vector<Process> out;
  std::error_code failure;
  for (std::filesystem::directory_iterator it(proc, failure), end; !failure && it != end; it.increment(failure)) {
    const std::string name = it->path().filename().string();
    pid_t pid = 0;
    const auto [rest, bad] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (bad != std::errc() || rest != name.data() + name.size()) continue;
    if (auto process = read_process(proc, pid)) out.push_back(*process);
  }
  return out;
}

std::vector<Process> descendants_of(pid_t ancestor, const std::vector<Process>& all) {
  std::set<pid_t> family{ancestor};
  std::vector<Process> out;
  // Numbers wrap, so a child's may be lower than its parent's: repeated until nothing is added.
  for (bool grown = true; grown;) {
    grown = false;
    for (const Process& one : all) {
      if (!family.contains(one.parent) || !family.insert(one.pid).second) continue;
      out.push_back(one);
      grown = true;
    }
  }
  return out;
}

bool has_signal(pid_t pid, const char* set, int signal) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(set)) continue;
    return (std::strtoull(line.c_str() + std::strlen(set), nullptr, 16) >> (signal - 1) & 1) != 0;
  }
  return false;
}

std::size_t end_descendants(Reach reach) {
  const pid_t self = ::getpid();
  const pid_t session = ::getsid(0);
  std::size_t left = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    left = 0;
    for (const Process& one : descendants_of(self, read_processes())) {
      if (reach == Reach::kAttached && one.session != session) continue;
      // A zombie of ours is to be reaped in the next pass, or has threads that still run; another's will be ours when its parent has gone.
      if (one.zombie && one.parent != self) continue;
      kill_process(one);
      ++left;
    }
    if (left == 0) return 0;
    ::poll(nullptr, 0, kPauseMs);
  }
  return left;
}

Adoption::Adoption() {
  ::prctl(PR_GET_CHILD_SUBREAPER, &before_, 0, 0, 0);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

Adoption::~Adoption() { ::prctl(PR_SET_CHILD_SUBREAPER, before_, 0, 0, 0); }

}  // namespace ipexrun::launcher
