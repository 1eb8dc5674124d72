// Where the limits of this process's cgroups are: which folders, in which hierarchies, under which mount points. What the files in
// them mean is the business of limits_cgroup.cpp.
#pragma once

#include <string>
#include <vector>

namespace ipexrun::launcher {

struct CgroupMount {
  bool v2 = false;
  std::string root;                      ///< the cgroup that the mount shows at its top
  std::string point;                     ///< where
  std::vector<std::string> controllers;  ///< of a v1 hierarchy
};

/// One line of /proc/self/cgroup: "4:cpu,cpuacct:/path" (v1), "0::/path" (v2).
struct CgroupMembership {
  bool v2 = false;
  std::vector<std::string> controllers;
  std::string path;
};

struct CgroupFolder {
  bool v2 = false;
  bool own = false;  ///< the process's own cgroup, not one above it
  std::string path;  ///< as the process sees it; a sysroot goes before it
};

class Cgroups {
 public:
  /// Reads <sysroot>/proc/self/{cgroup,mountinfo}.
  explicit Cgroups(std::string sysroot);

  /// The process's cgroup in each hierarchy that may limit `controller`, each followed by all above it that can be seen. A hierarchy
  /// that is mounted more than once is looked at through every mount that shows the process's cgroup.
  [[nodiscard]] std::vector<CgroupFolder> folders(const std::string& controller) const;

  [[nodiscard]] const std::vector<CgroupMount>& mounts() const { return mounts_; }
  [[nodiscard]] const std::vector<CgroupMembership>& memberships() const { return memberships_; }

 private:
  std::string sysroot_;
  std::vector<CgroupMount> mounts_;
  std::vector<CgroupMembership> memberships_;
};

/// The kernel writes space, tab, newline and backslash in mount points as \ooo.
std::string unescape_mount(const std::string& text);

}  // namespace ipexrun::launcher
