// Limits of the process's cgroup and of each one above it: a limit of any ancestor holds too. One function a controller.
#include <algorithm>

#include "launcher/machine/cgroups.h"
#include "launcher/machine/machine_limits.h"
#include "launcher/machine/text_files.h"

namespace ipexrun::launcher {
namespace {

/// Quota of one v1 cgroup in CPUs; nullopt = unlimited (-1) or not readable.
std::optional<double> quota_v1(const std::string& folder) {
  const auto quota = first_line(folder + "/cpu.cfs_quota_us");
  const auto period = first_line(folder + "/cpu.cfs_period_us");
  if (!quota || !period) return std::nullopt;
  const auto quota_us = number_in(*quota);
  const auto period_us = number_in(*period);
  if (!quota_us || !period_us || *quota_us <= 0 || *period_us <= 0) return std::nullopt;
  return *quota_us / *period_us;
}

/// Likewise for v2: cpu.max holds "max 100000" or "150000 100000".
std::optional<double> quota_v2(const std::string& folder) {
  const auto line = first_line(folder + "/cpu.max");
  if (!line) return std::nullopt;
  const std::vector<std::string> words = words_of(*line, ' ');
  const auto quota_us = number_in(words.empty() ? "" : words[0]);
  const auto period_us = words.size() < 2 ? std::optional<double>(100000) : number_in(words[1]);
  if (!quota_us || !period_us || *quota_us <= 0 || *period_us <= 0) return std::nullopt;
  return *quota_us / *period_us;
}

std::optional<std::uint64_t> number_of(const std::string& path) {
  const auto line = first_line(path);
  return line ? whole_number_in(*line) : std::nullopt;  // "max" is no number and no limit
}

void read_quota(const std::string& sysroot, const Cgroups& cgroups, Limits& out) {
  for (const CgroupFolder& folder : cgroups.folders("cpu")) {
    const std::optional<double> here = folder.v2 ? quota_v2(sysroot + folder.path) : quota_v1(sysroot + folder.path);
    if (!here || (out.quota_cpus != 0 && *here >= out.quota_cpus)) continue;
    out.quota_cpus = *here;
    out.quota_from = folder.path + (folder.v2 ? "/cpu.max" : "/cpu.cfs_quota_us");
  }
}

/// The effective set of the process's own group holds all that is above it. Older kernels have none: then each ancestor's set is.
void read_cpuset(const std::string& sysroot, const Cgroups& cgroups, Limits& out) {
  for (const CgroupFolder& folder : cgroups.folders("cpuset")) {
    const char* const names[] = {folder.v2 ? "/cpuset.cpus.effective" : "/cpuset.effective_cpus", "/cpuset.cpus"};
    for (const char* name : names) {
      const auto here = list_in(sysroot + folder.path + name);
      if (!here || here->empty()) continue;  // an empty v2 set means "as above"
      if (!out.cpuset_cpus) {
        out.cpuset_cpus = here;
      } else {
        std::vector<int> both;
        std::set_intersection(out.cpuset_cpus->begin(), out.cpuset_cpus->end(), here->begin(), here->end(), std::back_inserter(both));
        out.cpuset_cpus = both;
      }
      break;
    }
  }
}

void read_pids(const std::string& sysroot, const Cgroups& cgroups, Limits& out) {
  for (const CgroupFolder& folder : cgroups.folders("pids")) {
    const auto most = number_of(sysroot + folder.path + "/pids.max");
    if (!most) continue;
    const std::uint64_t now = number_of(sysroot + folder.path + "/pids.current").value_or(0);
    if (*most < now + kPlentyOfThreads) lower(out.threads, static_cast<long>(*most > now ? *most - now : 1), folder.path + "/pids.max");
  }
}

/// Page cache that the kernel gives back before it lets the group run into its limit.
std::uint64_t reclaimable(const std::string& folder, bool v2) {
  const auto cache = value_of(folder + "/memory.stat", v2 ? "inactive_file" : "total_inactive_file");
  return cache ? whole_number_in(*cache).value_or(0) : 0;
}

void read_memory(const std::string& sysroot, const Cgroups& cgroups, Limits& out) {
  for (const CgroupFolder& folder : cgroups.folders("memory")) {
    const std::string path = sysroot + folder.path;
    // Without use_hierarchy (v1 before Linux 5.11) a group's limit does not hold for the groups below it.
    if (!folder.v2 && !folder.own && first_line(path + "/memory.use_hierarchy").value_or("1") == "0") continue;
    const std::uint64_t used = number_of(path + (folder.v2 ? "/memory.current" : "/memory.usage_in_bytes")).value_or(0);
    const std::uint64_t held = used - std::min(used, reclaimable(path, folder.v2));
    // memory.high does not end a program, but it slows one down to a crawl: for planning it is a limit like the other.
    const std::vector<std::string> names =
        folder.v2 ? std::vector<std::string>{"/memory.max", "/memory.high"} : std::vector<std::string>{"/memory.limit_in_bytes"};
    for (const std::string& name : names) {
      const auto limit = number_of(path + name);
      const std::uint64_t none = out.memory_total_bytes > 0 ? out.memory_total_bytes : 1ull << 62;  // v1 writes "none" as a huge number
      if (!limit || *limit == 0 || *limit >= none) continue;
      lower(out.memory, *limit, folder.path + name);
      const std::uint64_t left = std::max<std::uint64_t>(1, *limit - std::min(*limit, held));
      if (out.memory_available_bytes == 0 || left < out.memory_available_bytes) out.memory_available_bytes = left;
    }
  }
}

}  // namespace

void read_cgroup_limits(const std::string& sysroot, Limits& out) {
  const Cgroups cgroups(sysroot);
  read_quota(sysroot, cgroups, out);
  read_cpuset(sysroot, cgroups, out);
  read_pids(sysroot, cgroups, out);
  read_memory(sysroot, cgroups, out);
}

}  // namespace ipexrun::launcher
