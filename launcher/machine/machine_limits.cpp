#include "launcher/machine/machine_limits.h"

#include <charconv>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string_view>

#include "launcher/plan/show.h"

namespace ipexrun::launcher {
namespace {

std::optional<std::string> read_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  if (!in || !std::getline(in, line)) return std::nullopt;
  return line;
}

std::vector<std::string> words_of(const std::string& line, char separator) {
  std::vector<std::string> out;
  std::istringstream in(line);
  for (std::string word; std::getline(in, word, separator);) out.push_back(word);
  return out;
}

bool has_word(const std::string& comma_list, std::string_view wanted) {
  for (const std::string& word : words_of(comma_list, ','))
    if (word == wanted) return true;
  return false;
}

/// The kernel writes space, tab, newline and backslash in mount points as \ooo.
std::string unescape(const std::string& text) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    int code = 0;
    const bool escape = text[at] == '\\' && at + 3 < text.size() &&
                        std::from_chars(text.data() + at + 1, text.data() + at + 4, code, 8).ptr == text.data() + at + 4;
    if (escape) {
      out += static_cast<char>(code);
      at += 3;
    } else {
      out += text[at];
    }
  }
  return out;
}

/// Where the cpu controller's hierarchy is mounted, and which cgroup the mount shows at its top.
struct Mount {
  std::string root;
  std::string point;
};

struct CpuMounts {
  std::optional<Mount> v1;
  std::optional<Mount> v2;
};

// A line: "31 23 0:28 /root /mount/point rw,relatime - cgroup cgroup rw,cpu,cpuacct"; optional fields stand before the "-".
CpuMounts read_mounts(const std::string& sysroot) {
  CpuMounts out;
  std::ifstream in(sysroot + "/proc/self/mountinfo");
  for (std::string line; std::getline(in, line);) {
    const std::size_t dash = line.find(" - ");
    const std::vector<std::string> left = words_of(line.substr(0, dash), ' ');
    if (dash == std::string::npos || left.size() < 6) continue;
    const std::vector<std::string> right = words_of(line.substr(dash + 3), ' ');
    if (right.size() < 3) continue;
    const Mount mount{unescape(left[3]), unescape(left[4])};
    if (right[0] == "cgroup2" && !out.v2) out.v2 = mount;
    if (right[0] == "cgroup" && !out.v1 && has_word(right[2], "cpu")) out.v1 = mount;
  }
  return out;
}

/// The process's cgroup as a path below the mount point: "" for the top one. A container may see only its own cgroup at the mount
/// (root "/docker/ab", path "/docker/ab"); a path that is not below the root is taken as the top.
std::string below_mount(const Mount& mount, const std::string& cgroup) {
  if (mount.root == "/") return cgroup == "/" ? "" : cgroup;
  if (cgroup.compare(0, mount.root.size(), mount.root) != 0) return "";
  const std::string rest = cgroup.substr(mount.root.size());
  return rest.empty() || rest[0] == '/' ? rest : "";
}

std::optional<double> parse_double(const std::string& text) {
  double value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

/// Quota of one v1 cgroup in CPUs; nullopt = unlimited (-1) or not readable.
std::optional<double> quota_v1(const std::string& folder) {
  const auto quota = read_line(folder + "/cpu.cfs_quota_us");
  const auto period = read_line(folder + "/cpu.cfs_period_us");
  if (!quota || !period) return std::nullopt;
  const auto quota_us = parse_double(*quota);
  const auto period_us = parse_double(*period);
  if (!quota_us || !period_us || *quota_us <= 0 || *period_us <= 0) return std::nullopt;
  return *quota_us / *period_us;
}

/// Likewise for v2: cpu.max holds "max 100000" or "150000 100000".
std::optional<double> quota_v2(const std::string& folder) {
  const auto line = read_line(folder + "/cpu.max");
  if (!line) return std::nullopt;
  const std::vector<std::string> words = words_of(*line, ' ');
  const auto quota_us = parse_double(words.empty() ? "" : words[0]);
  const auto period_us = words.size() < 2 ? std::optional<double>(100000) : parse_double(words[1]);
  if (!quota_us || !period_us || *quota_us <= 0 || *period_us <= 0) return std::nullopt;
  return *quota_us / *period_us;
}

/// From the process's cgroup up to the mount point: a limit of any ancestor holds too.
template <typename Quota>
void walk_up(const std::string& sysroot, const Mount& mount, const std::string& cgroup, const char* file, Quota quota, Limits* out) {
  std::string below = below_mount(mount, cgroup);
  while (true) {
    const std::string folder = sysroot + mount.point + below;
    const std::optional<double> here = quota(folder);
    if (here && (out->quota_cpus == 0 || *here < out->quota_cpus)) {
      out->quota_cpus = *here;
      out->quota_from = mount.point + below + "/" + file;
    }
    if (below.empty()) return;
    below.resize(below.find_last_of('/'));
  }
}

void read_quota(const std::string& sysroot, Limits* out) {
  const CpuMounts mounts = read_mounts(sysroot);
  std::ifstream in(sysroot + "/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    // "4:cpu,cpuacct:/path" for v1, "0::/path" for v2; the path itself may contain colons.
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (path.empty() || path[0] != '/') continue;
    if (controllers.empty() && mounts.v2) walk_up(sysroot, *mounts.v2, path, "cpu.max", quota_v2, out);
    if (has_word(controllers, "cpu") && mounts.v1) walk_up(sysroot, *mounts.v1, path, "cpu.cfs_quota_us", quota_v1, out);
  }
}

void read_status(const std::string& sysroot, Limits* out) {
  std::ifstream in(sysroot + "/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    const std::size_t tab = line.find(":\t");
    if (tab == std::string::npos) continue;
    const std::string key = line.substr(0, tab);
    if (key != "Cpus_allowed_list" && key != "Mems_allowed_list") continue;
    auto list = parse_cpu_list(line.substr(tab + 2));
    if (!list.ok()) continue;
    (key == "Cpus_allowed_list" ? out->cpus_allowed : out->mems_allowed) = *list;
  }
}

}  // namespace

Limits read_limits(const std::string& sysroot) {
  Limits out;
  read_status(sysroot, &out);
  read_quota(sysroot, &out);
  return out;
}

}  // namespace ipexrun::launcher
