#include "launcher/run/omp_watch.h"

#include <algorithm>
#include <deque>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "launcher/run/omp_runtime.h"

namespace ipexrun::launcher {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr std::size_t kMostProcesses = 64;  // of one instance, in one look
constexpr std::size_t kMostThreads = 256;   // of one process whose children are asked for

/// A look costs up to a millisecond of one core for each process, mostly the kernel writing the text, and a program may have hundreds: so
/// the pauses double. Runtimes come with imports, which stand at the start.
constexpr milliseconds kLongestPause = std::chrono::minutes(1);

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return file ? text.str() : "";
}

/// The processes that any thread of `process` (/proc/PID) has started.
std::vector<std::string> children_of(const fs::path& process) {
  std::vector<std::string> out;
  std::error_code failure;
  std::size_t threads = 0;
  for (fs::directory_iterator it(process / "task", failure), end; !failure && it != end && threads < kMostThreads; it.increment(failure)) {
    ++threads;
    std::istringstream words(text_of(it->path() / "children"));
    for (std::string word; words >> word;) out.push_back(word);
  }
  return out;
}

bool is_preloaded(const std::string& path, const std::string& preload) {
  std::error_code failure;
  for (std::size_t at = 0; at < preload.size();) {
    const std::size_t end = std::min(preload.find_first_of(": ", at), preload.size());
    const std::string entry = preload.substr(at, end - at);
    if (entry == path) return true;
    const fs::path real = fs::canonical(entry, failure);  // the kernel names the file that a link leads to
    if (!entry.empty() && !failure && real == path) return true;
    at = end + 1;
  }
  return false;
}

}  // namespace

std::vector<std::string> omp_runtimes_in(const std::string& maps) {
  std::vector<std::string> out;
  std::istringstream lines(maps);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t at = line.find('/');
    if (at == std::string::npos) continue;
    const std::string path = line.substr(at);
    if (omp_family_of(path) != OmpFamily::kNone && std::find(out.begin(), out.end(), path) == out.end()) out.push_back(path);
  }
  return out;
}

std::vector<std::string> omp_rivals(const std::vector<std::string>& runtimes, const std::string& preload) {
  for (const std::string& runtime : runtimes) {
    if (!is_preloaded(runtime, preload)) continue;
    const bool serves_all = omp_family_of(runtime) != OmpFamily::kGnu;
    std::vector<std::string> out{runtime};
    for (const std::string& other : runtimes) {
      const bool served = serves_all || omp_family_of(other) == OmpFamily::kGnu;
      if (other != runtime && !served) out.push_back(other);
    }
    return out;
  }
  return runtimes;
}

void OmpWatch::looked(Clock::time_point now) {
  next_ = now + pause_;
  pause_ = std::min(2 * pause_, kLongestPause);
}

void OmpWatch::look(pid_t pid, std::vector<std::string>& found) const {
  std::deque<std::string> queue{std::to_string(pid)};
  for (std::size_t looked = 0; !queue.empty() && looked < kMostProcesses; ++looked) {
    const fs::path process = fs::path(proc_) / queue.front();
    queue.pop_front();
    std::vector<std::string> here = omp_runtimes_in(text_of(process / "maps"));
    if (here.size() > found.size()) found = std::move(here);
    for (std::string& child : children_of(process)) queue.push_back(std::move(child));
  }
}

}  // namespace ipexrun::launcher
