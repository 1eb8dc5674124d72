#include "launcher/run/system_facts.h"

#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <sys/utsname.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace ipexrun::launcher {
namespace {

/// First line of a small file, "" when it cannot be read.
std::string line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// Value of the first line "key<separator>value" of a file, without surrounding blanks and quotes.
std::string value_in(const std::string& path, const std::string& key, char separator) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, key.size() + 1, key + separator) != 0) continue;
    const std::size_t begin = line.find_first_not_of(" \t\"", key.size() + 1);
    const std::size_t end = line.find_last_not_of(" \t\"\r");
    return begin == std::string::npos ? "" : line.substr(begin, end - begin + 1);
  }
  return "";
}

/// "always [madvise] never" -> "madvise"
std::string in_brackets(const std::string& text) {
  const std::size_t begin = text.find('[');
  const std::size_t end = text.find(']', begin);
  return begin == std::string::npos || end == std::string::npos ? "" : text.substr(begin + 1, end - begin - 1);
}

std::string gibibytes(const std::string& kibibytes) {
  const double value = std::strtod(kibibytes.c_str(), nullptr);
  return value > 0 ? fmt::format("{:.1f} GiB", value / (1024.0 * 1024.0)) : "";
}

std::string container_of(const std::string& root) {
  std::error_code failure;
  if (std::filesystem::exists(root + "/.dockerenv", failure)) return "docker";
  if (std::filesystem::exists(root + "/run/.containerenv", failure)) return "podman";
  return line_of(root + "/run/systemd/container");
}

}  // namespace

SystemFacts read_system_facts(const std::string& sysroot) {
  SystemFacts facts;
  facts.os = value_in(sysroot + "/etc/os-release", "PRETTY_NAME", '=');
  utsname name{};
  if (::uname(&name) == 0) facts.kernel = fmt::format("{} {}", name.release, name.machine);
  facts.glibc = ::gnu_get_libc_version();
  facts.governor = line_of(sysroot + "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  facts.huge_pages = in_brackets(line_of(sysroot + "/sys/kernel/mm/transparent_hugepage/enabled"));
  facts.memory_total = gibibytes(value_in(sysroot + "/proc/meminfo", "MemTotal", ':'));
  facts.memory_free = gibibytes(value_in(sysroot + "/proc/meminfo", "MemAvailable", ':'));
  facts.swappiness = line_of(sysroot + "/proc/sys/vm/swappiness");
  facts.numa_balancing = line_of(sysroot + "/proc/sys/kernel/numa_balancing");
  const std::string load = line_of(sysroot + "/proc/loadavg");
  facts.load = load.substr(0, load.find(' '));
  const std::string seccomp = value_in(sysroot + "/proc/self/status", "Seccomp", ':');
  facts.seccomp = seccomp == "0" ? "none" : seccomp == "2" ? "filter" : seccomp;
  facts.container = container_of(sysroot);
  return facts;
}

}  // namespace ipexrun::launcher
