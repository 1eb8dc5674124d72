#include "launcher/machine/oom_kills.h"

#include <sstream>

#include "launcher/machine/cgroups.h"
#include "launcher/machine/text_files.h"

namespace ipexrun::launcher {
namespace {

/// The line "oom_kill N", beside which there are "oom_kill_disable" and "oom_group_kill".
std::optional<long> count_in(const std::string& path) {
  std::istringstream lines(whole_file(path).value_or(""));
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> words = words_of(line, ' ');
    if (words.size() != 2 || words[0] != "oom_kill") continue;
    if (const auto number = whole_number_in(words[1])) return static_cast<long>(*number);
  }
  return std::nullopt;
}

}  // namespace

std::optional<long> read_oom_kills(const std::string& sysroot) {
  for (const CgroupFolder& folder : Cgroups(sysroot).folders("memory")) {
    if (!folder.own) continue;
    if (const auto count = count_in(sysroot + folder.path + (folder.v2 ? "/memory.events" : "/memory.oom_control"))) return count;
  }
  return count_in(sysroot + "/proc/vmstat");
}

}  // namespace ipexrun::launcher
