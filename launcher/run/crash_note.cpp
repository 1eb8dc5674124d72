#include "launcher/run/crash_note.h"

#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "launcher/machine/machine_limits.h"
#include "launcher/machine/oom_kills.h"

namespace ipexrun::launcher {
namespace {

constexpr std::size_t kTailBytes = 8192;
constexpr std::size_t kLineBytes = 200;

bool leaves_core(int signal) {
  constexpr std::array kWithCore{SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGQUIT, SIGXCPU, SIGXFSZ};
  return std::find(kWithCore.begin(), kWithCore.end(), signal) != kWithCore.end();
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  const char* text = ::sigdescr_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal) : fmt::format("SIG{} ({})", name, text != nullptr ? text : "unknown");
}

std::string megabytes(std::uint64_t bytes) { return fmt::format("{:.0f} MB", static_cast<double>(bytes) / 1e6); }

std::string core_line(const InstanceOutcome& outcome, const CrashSurroundings& around) {
  if (outcome.core_dumped && around.core_pattern.starts_with('|')) {
    const bool systemd = around.core_pattern.find("systemd-coredump") != std::string::npos;
    return "its core went to '" + around.core_pattern.substr(1, around.core_pattern.find(' ') - 1) + "'" +
           (systemd ? fmt::format(": coredumpctl info {}", outcome.pid) : "");
  }
  if (outcome.core_dumped) return "it left a core file, named by the pattern '" + around.core_pattern + "'";
  if (!around.core_files_allowed) return "no core file, since the limit is 0: 'ulimit -c unlimited' before ipexrun allows one";
  return "";
}

std::string kill_line(const InstanceOutcome& outcome, const CrashSurroundings& around) {
  const std::string used = "it used " + megabytes(outcome.max_rss_bytes) +
                           (around.memory_limit_bytes != 0 ? ", the limit is " + megabytes(around.memory_limit_bytes) : "");
  if (!around.oom_kills) return "not sent by ipexrun; where the kernel ran out of memory, dmesg says so (" + used + ")";
  if (*around.oom_kills == 0) return "not sent by ipexrun, and not by the kernel for want of memory (" + used + ")";
  return "the kernel ran out of memory meanwhile and ended processes (" + used + "): fewer instances or --memory bounded need less";
}

std::string hint_line(const InstanceOutcome& outcome, const CrashSurroundings& around) {
  if (outcome.signal == SIGKILL) return kill_line(outcome, around);
  if (outcome.signal == SIGSYS) return "a system call filter (seccomp) ends programs that make a forbidden call; the audit log names it";
  return leaves_core(outcome.signal) ? core_line(outcome, around) : "";
}

std::string printable(std::string line) {
  const std::size_t last_return = line.find_last_of('\r');
  if (last_return != std::string::npos) line.erase(0, last_return + 1);
  std::replace_if(
      line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, ' ');
  if (line.size() > kLineBytes) line = line.substr(0, kLineBytes) + "...";
  return line;
}

}  // namespace

std::vector<std::string> last_lines(const std::string& path, std::size_t most) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (path.empty() || !file) return {};
  const auto size = static_cast<std::size_t>(file.tellg());
  const bool cut = size > kTailBytes;
  file.seekg(static_cast<std::streamoff>(cut ? size - kTailBytes : 0));
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    lines.push_back(printable(line));
  }
  if (cut && lines.size() > 1) lines.erase(lines.begin());  // its start is missing
  while (!lines.empty() && lines.back().find_first_not_of(' ') == std::string::npos) lines.pop_back();
  if (lines.size() > most) lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(most));
  return lines;
}

std::vector<std::string> crash_lines(const InstanceOutcome& outcome, const std::vector<std::string>& last,
                                     const CrashSurroundings& around) {
  std::vector<std::string> out;
  out.push_back(fmt::format("instance {} was ended by {} after {:.1f} s{}", outcome.index, signal_name(outcome.signal),
                            outcome.wall_seconds, last.empty() ? "" : "; its last lines:"));
  for (const std::string& line : last) out.push_back("  | " + line);
  if (const std::string hint = hint_line(outcome, around); !hint.empty()) out.push_back("  " + hint);
  return out;
}

CrashSurroundings read_crash_surroundings(std::optional<long> oom_kills_before) {
  CrashSurroundings out;
  rlimit limit{};
  out.core_files_allowed = ::getrlimit(RLIMIT_CORE, &limit) == 0 && limit.rlim_cur != 0;
  std::ifstream pattern("/proc/sys/kernel/core_pattern");
  std::getline(pattern, out.core_pattern);
  const auto oom_kills = read_oom_kills("");
  if (oom_kills && oom_kills_before) out.oom_kills = *oom_kills - *oom_kills_before;
  Limits limits;
  read_cgroup_limits("", limits);
  if (limits.memory) out.memory_limit_bytes = limits.memory->value;
  return out;
}

}  // namespace ipexrun::launcher
