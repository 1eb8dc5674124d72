// Limits that /proc shows for the process and the machine as a whole.
#include <algorithm>

#include "launcher/machine/machine_limits.h"
#include "launcher/machine/text_files.h"
#include "launcher/plan/show.h"

namespace ipexrun::launcher {
namespace {

std::optional<std::vector<int>> list_value(const std::string& status, const char* key) {
  const auto text = value_in(status, key);
  if (!text) return std::nullopt;
  auto list = parse_cpu_list(*text);
  if (!list.ok()) return std::nullopt;
  return *list;
}

}  // namespace

void read_process_limits(const std::string& sysroot, const ProcessFacts& facts, Limits& out) {
  const std::string status = whole_file(sysroot + "/proc/self/status").value_or("");
  out.cpus_allowed = list_value(status, "Cpus_allowed_list");
  out.mems_allowed = list_value(status, "Mems_allowed_list");
  const std::string memory = whole_file(sysroot + "/proc/meminfo").value_or("");
  out.memory_total_bytes = meminfo_bytes(memory, "MemTotal");
  out.memory_available_bytes = meminfo_bytes(memory, "MemAvailable");
  if (facts.any_number_of_tasks || !facts.user_tasks) return;
  if (const std::optional<long> most = max_processes(sysroot)) lower(out.threads, std::max(1L, *most - *facts.user_tasks), "ulimit -u");
}

Limits read_limits(const std::string& sysroot, const ProcessFacts& facts) {
  Limits out;
  read_process_limits(sysroot, facts, out);
  read_cgroup_limits(sysroot, out);
  return out;
}

}  // namespace ipexrun::launcher
