#include "launcher/machine/cgroups.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>

#include "launcher/machine/text_files.h"

namespace ipexrun::launcher {
namespace {

bool has(const std::vector<std::string>& words, const std::string& wanted) {
  return std::find(words.begin(), words.end(), wanted) != words.end();
}

/// A cgroup path as a process in a cgroup namespace sees it: ".." stands for a group above the namespace's own, whose name is hidden.
struct Relative {
  std::size_t up = 0;
  std::vector<std::string> names;
};

Relative relative(const std::string& path) {
  Relative out;
  for (const std::string& name : words_of(path, '/')) {
    if (name.empty()) continue;
    if (name == ".." && out.names.empty()) {
      ++out.up;
    } else {
      out.names.push_back(name);
    }
  }
  return out;
}

std::string joined(std::vector<std::string>::const_iterator begin, std::vector<std::string>::const_iterator end) {
  std::string out;
  for (; begin != end; ++begin) out += "/" + *begin;
  return out;
}

bool holds_process(const std::string& folder, const std::string& pid) {
  std::ifstream in(folder + "/cgroup.procs");
  for (std::string line; std::getline(in, line);)
    if (line == pid) return true;
  return false;
}

/// The folder `depth` levels below `top` plus `tail` whose cgroup.procs has `pid`: the names between are hidden by a namespace. Bounded:
/// a host with very many groups is rather not searched to the end.
std::optional<std::string> find_process(const std::string& top, std::size_t depth, const std::string& tail, const std::string& pid) {
  constexpr std::size_t kMostFolders = 4096;
  std::vector<std::string> level = {""};
  std::size_t looked_at = 0;
  for (std::size_t i = 0; i < depth; ++i) {
    std::vector<std::string> next;
    for (const std::string& parent : level) {
      std::error_code failure;
      for (std::filesystem::directory_iterator it(top + parent, failure), end; !failure && it != end; it.increment(failure)) {
        std::error_code ignored;
        if (++looked_at > kMostFolders) return std::nullopt;
        if (it->is_directory(ignored) && !it->is_symlink(ignored)) next.push_back(parent + "/" + it->path().filename().string());
      }
    }
    level = std::move(next);
  }
  std::sort(level.begin(), level.end());
  for (const std::string& folder : level)
    if (holds_process(top + folder + tail, pid)) return folder + tail;
  return std::nullopt;
}

std::string own_pid(const std::string& sysroot) {
  // In a pid namespace NSpid ends with the number that cgroup.procs shows there.
  const std::string status = whole_file(sysroot + "/proc/self/status").value_or("");
  if (const auto all = value_in(status, "NSpid")) return all->substr(all->find_last_of(" \t") + 1);
  return value_in(status, "Pid").value_or("");
}

/// Path of the process's cgroup below the mount point, "" for its top; nullopt when the mount does not show it.
std::optional<std::string> below_mount(const std::string& sysroot, const CgroupMount& mount, const std::string& cgroup) {
  const Relative top = relative(mount.root);
  const Relative own = relative(cgroup);
  const auto begin = own.names.begin();
  if (own.up == top.up) {
    if (top.names.size() > own.names.size() || !std::equal(top.names.begin(), top.names.end(), begin)) return std::nullopt;
    return joined(begin + static_cast<std::ptrdiff_t>(top.names.size()), own.names.end());
  }
  if (own.up > top.up || !top.names.empty()) return std::nullopt;
  return find_process(sysroot + mount.point, top.up - own.up, joined(begin, own.names.end()), own_pid(sysroot));
}

// A line: "31 23 0:28 /root /mount/point rw,relatime - cgroup cgroup rw,cpu,cpuacct"; optional fields stand before the "-".
std::optional<CgroupMount> parse_mount(const std::string& line) {
  const std::size_t dash = line.find(" - ");
  if (dash == std::string::npos) return std::nullopt;
  const std::vector<std::string> left = words_of(line.substr(0, dash), ' ');
  const std::vector<std::string> right = words_of(line.substr(dash + 3), ' ');
  if (left.size() < 6 || right.size() < 3 || (right[0] != "cgroup" && right[0] != "cgroup2")) return std::nullopt;
  CgroupMount out;
  out.v2 = right[0] == "cgroup2";
  out.root = unescape_mount(left[3]);
  out.point = unescape_mount(left[4]);
  if (!out.v2) out.controllers = words_of(right[2], ',');
  return out;
}

// A line: "4:cpu,cpuacct:/path"; the path itself may contain colons.
std::optional<CgroupMembership> parse_membership(const std::string& line) {
  const std::size_t first = line.find(':');
  const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
  if (second == std::string::npos) return std::nullopt;
  CgroupMembership out;
  const std::string controllers = line.substr(first + 1, second - first - 1);
  out.v2 = controllers.empty();
  out.controllers = words_of(controllers, ',');
  out.path = line.substr(second + 1);
  if (out.path.empty() || out.path[0] != '/') return std::nullopt;
  return out;
}

void add_with_ancestors(const CgroupMount& mount, std::string below, std::vector<CgroupFolder>& out) {
  for (bool own = true;; own = false) {
    out.push_back({mount.v2, own, mount.point + below});
    if (below.empty()) return;
    below.resize(below.find_last_of('/'));
  }
}

}  // namespace

std::string unescape_mount(const std::string& text) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    int code = 0;
    const bool escape = text[at] == '\\' && at + 3 < text.size() &&
                        std::from_chars(text.data() + at + 1, text.data() + at + 4, code, 8).ptr == text.data() + at + 4;
    out += escape ? static_cast<char>(code) : text[at];
    if (escape) at += 3;
  }
  return out;
}

Cgroups::Cgroups(std::string sysroot) : sysroot_(std::move(sysroot)) {
  std::ifstream mountinfo(sysroot_ + "/proc/self/mountinfo");
  for (std::string line; std::getline(mountinfo, line);)
    if (auto mount = parse_mount(line)) mounts_.push_back(std::move(*mount));
  std::ifstream own(sysroot_ + "/proc/self/cgroup");
  for (std::string line; std::getline(own, line);)
    if (auto membership = parse_membership(line)) memberships_.push_back(std::move(*membership));
}

std::vector<CgroupFolder> Cgroups::folders(const std::string& controller) const {
  std::vector<CgroupFolder> out;
  for (const CgroupMembership& own : memberships_) {
    if (!own.v2 && !has(own.controllers, controller)) continue;
    const CgroupMount* fallback = nullptr;
    const std::size_t before = out.size();
    for (const CgroupMount& mount : mounts_) {
      if (mount.v2 != own.v2 || (!mount.v2 && !has(mount.controllers, controller))) continue;
      if (fallback == nullptr) fallback = &mount;
      if (const auto below = below_mount(sysroot_, mount, own.path)) add_with_ancestors(mount, *below, out);
    }
    // The process's group is not below any mount (a container that was moved, or a path of the host): what is mounted is the nearest.
    if (out.size() == before && fallback != nullptr) add_with_ancestors(*fallback, "", out);
  }
  return out;
}

}  // namespace ipexrun::launcher
