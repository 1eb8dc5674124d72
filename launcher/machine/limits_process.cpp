// Limits that /proc shows for the process and the machine as a whole.
#include <algorithm>

#include "launcher/machine/machine_limits.h"
#include "launcher/machine/text_files.h"
#include "launcher/plan/show.h"

namespace ipexrun::launcher {
namespace {

std::optional<std::vector<int>> status_list(const std::string& sysroot, const char* key) {
  const auto text = value_of(sysroot + "/proc/self/status", key);
  if (!text) return std::nullopt;
  auto list = parse_cpu_list(*text);
  if (!list.ok()) return std::nullopt;
  return *list;
}

/// "24684084 kB"
std::uint64_t meminfo_bytes(const std::string& sysroot, const char* key) {
  const std::string text = value_of(sysroot + "/proc/meminfo", key).value_or("");
  return whole_number_in(text.substr(0, text.find(' '))).value_or(0) * 1024;
}

}  // namespace

void read_process_limits(const std::string& sysroot, const ProcessFacts& facts, Limits& out) {
  out.cpus_allowed = status_list(sysroot, "Cpus_allowed_list");
  out.mems_allowed = status_list(sysroot, "Mems_allowed_list");
  out.memory_total_bytes = meminfo_bytes(sysroot, "MemTotal");
  out.memory_available_bytes = meminfo_bytes(sysroot, "MemAvailable");
  const std::optional<long> most = max_processes(sysroot);
  if (most && !facts.any_number_of_tasks && facts.user_tasks) lower(out.threads, std::max(1L, *most - *facts.user_tasks), "ulimit -u");
}

Limits read_limits(const std::string& sysroot, const ProcessFacts& facts) {
  Limits out;
  read_process_limits(sysroot, facts, out);
  read_cgroup_limits(sysroot, out);
  return out;
}

}  // namespace ipexrun::launcher
