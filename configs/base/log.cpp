#include "configs/base/log.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <mutex>
#include <set>
#include <string>

#include "configs/contract/env.h"

namespace ipexrun::log {

Level level() {
  static const Level parsed = [] {
    std::string text = env::get(env::Id::kLog).value_or("");  // in any case, as in the shim
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (text == "error") return Level::kError;
    if (text == "info") return Level::kInfo;
    if (text == "debug") return Level::kDebug;
    return Level::kWarn;
  }();
  return parsed;
}

void line(Level at, std::string_view text) {
  if (at > level()) return;
  const int saved_errno = errno;
  std::string out = "ipexrun: ";
  out.append(text);
  out.push_back('\n');
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t n = ::write(STDERR_FILENO, out.data() + done, out.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;  // a closed stderr must never stop the run
    done += static_cast<std::size_t>(n);
  }
  errno = saved_errno;
}

void once(Level at, std::string_view key, std::string_view text) {
  static std::mutex mutex;
  static std::set<std::string, std::less<>>* seen = new std::set<std::string, std::less<>>();  // leaked: used from exit handlers
  {
    const std::lock_guard lock(mutex);
    if (!seen->emplace(key).second) return;
  }
  line(at, text);
}

}  // namespace ipexrun::log
