// What the system says of itself, as text for people: versions and settings that decide speed. No topology (launcher/plan/machine.h)
// and no instruction sets (configs/base/isa.h).
#pragma once

#include <string>

namespace ipexrun::launcher {

/// Any field that cannot be read is "".
struct SystemFacts {
  std::string os;              ///< PRETTY_NAME of os-release
  std::string kernel;          ///< "6.1.0-18-amd64 x86_64"
  std::string glibc;           ///< of this process
  std::string governor;        ///< cpufreq governor of CPU 0; "" in most virtual machines
  std::string huge_pages;      ///< transparent huge pages: always, madvise or never
  std::string memory_total;    ///< MemTotal, "23.4 GiB"
  std::string memory_free;     ///< MemAvailable
  std::string swappiness;      ///< vm.swappiness
  std::string numa_balancing;  ///< kernel.numa_balancing
  std::string load;            ///< load average of the last minute
  std::string seccomp;         ///< "none" or "filter" of this process
  std::string container;       ///< "docker", "podman", ... when something says so
};

/// `sysroot` replaces "/" for files (tests); "" = the live system. `os-release`, /proc and /sys only.
SystemFacts read_system_facts(const std::string& sysroot = "");

}  // namespace ipexrun::launcher
