#include "launcher/run/log_rotation.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string_view>
#include <vector>

#include "launcher/run/posix.h"

namespace ipexrun::launcher {
namespace {

constexpr std::size_t kStampLength = 15;  // 20261121T101500

bool all_of(std::string_view text, std::string_view allowed) {
  return !text.empty() && text.find_first_not_of(allowed) == std::string_view::npos;
}

bool is_stamp(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789";
  return text.size() == kStampLength && text[8] == 'T' && all_of(text.substr(0, 8), kDigits) && all_of(text.substr(9), kDigits);
}

/// Held by a lock of whoever writes it (open_log).
bool in_use(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  return !file.open() || (::flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK);
}

bool is_regular(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

}  // namespace

std::optional<LogName> parse_log_name(const std::string& name) {
  constexpr std::string_view kInstance = "_instance_";
  constexpr std::string_view kCores = "_cores_";
  constexpr std::string_view kEnd = ".log";
  const std::string_view text = name;
  const std::size_t instance = text.rfind(kInstance);
  if (instance == std::string_view::npos || !text.ends_with(kEnd) || instance < kStampLength + 2) return std::nullopt;
  const std::string_view rest = text.substr(instance + kInstance.size(), text.size() - instance - kInstance.size() - kEnd.size());
  const std::size_t cores = rest.find(kCores);
  if (cores == std::string_view::npos || !all_of(rest.substr(0, cores), "0123456789")) return std::nullopt;
  std::string_view list = rest.substr(cores + kCores.size());  // "0-3,8", or "0-to-43-44-cpus" where the list is long
  const std::size_t dot = list.find('.');                      // ".2": of a second run of that second (open_log)
  if (dot != std::string_view::npos && !all_of(list.substr(dot + 1), "0123456789")) return std::nullopt;
  list = list.substr(0, dot);
  if (!list.empty() && !all_of(list, "0123456789,-tocpus")) return std::nullopt;
  const std::string_view stamp = text.substr(instance - kStampLength, kStampLength);
  if (!is_stamp(stamp) || text[instance - kStampLength - 1] != '_') return std::nullopt;
  return LogName{std::string(text.substr(0, instance - kStampLength - 1)), std::string(stamp)};
}

int remove_old_logs(const std::string& own_path, int keep) {
  const std::filesystem::path own(own_path);
  const auto ours = parse_log_name(own.filename().string());
  if (!ours || keep <= 0) return 0;
  std::map<std::string, std::vector<std::string>, std::greater<>> runs{{ours->stamp, {}}};  // newest first
  std::error_code failure;
  const std::filesystem::path folder = own.parent_path().empty() ? "." : own.parent_path();
  for (std::filesystem::directory_iterator it(folder, failure), end; !failure && it != end; it.increment(failure)) {
    const auto found = parse_log_name(it->path().filename().string());
    if (found && found->prefix == ours->prefix) runs[found->stamp].push_back(it->path().string());
  }
  int removed = 0;
  int kept = 0;
  for (const auto& [stamp, files] : runs) {
    // The clock may have been set back: this run's files are the newest ones whatever their stamp says.
    if (stamp == ours->stamp || ++kept < keep) continue;
    for (const std::string& file : files) {
      if (is_regular(file) && !in_use(file) && ::unlink(file.c_str()) == 0) ++removed;
    }
  }
  return removed;
}

}  // namespace ipexrun::launcher
