#include "preload/select/decision_cache.h"

#include <cpuid.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string_view>
#include <utility>
#include <vector>

#include "configs/base/log.h"
#include "configs/contract/env.h"

namespace ipexrun::preload {
namespace {

/// "AMD EPYC 9R14"; which kernel is faster depends on it. "" on a CPU that does not tell.
std::string cpu_model() {
#if defined(__x86_64__) || defined(__i386__)
  constexpr unsigned kFirst = 0x80000002;
  constexpr unsigned kLast = 0x80000004;
  if (__get_cpuid_max(0x80000000, nullptr) < kLast) return "";
  std::array<unsigned, 12> words{};
  for (unsigned leaf = kFirst; leaf <= kLast; ++leaf) {
    unsigned* four = words.data() + std::size_t{4} * (leaf - kFirst);
    __cpuid(leaf, four[0], four[1], four[2], four[3]);
  }
  std::array<char, sizeof words + 1> text{};
  std::memcpy(text.data(), words.data(), sizeof words);
  const std::string_view model(text.data());
  const std::size_t first = model.find_first_not_of(' ');
  return first == std::string_view::npos ? "" : std::string(model.substr(first, model.find_last_not_of(' ') - first + 1));
#else
  return "";
#endif
}

/// FNV-1a: a name for a file, nothing secret.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

/// And those above it, as launcher/run/user_folders.h makes it. False and errno where it is not there afterwards.
bool make_folder(const std::string& path) {
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    struct stat info {};
    if (::mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) {
      const int problem = errno;  // "/home" on a read-only root is no failure
      if (::stat(part.c_str(), &info) != 0) {
        errno = problem;
        return false;
      }
    }
    if (end == std::string::npos) return true;
  }
}

/// "" where the current folder is gone.
std::string absolute(const std::string& path) {
  if (path.front() == '/') return path;
  std::array<char, PATH_MAX> here{};
  return ::getcwd(here.data(), here.size()) == nullptr ? "" : std::string(here.data()) + '/' + path;
}

/// "" when `folder` is a directory that only we can write to.
std::string objection(const std::string& folder) {
  struct stat info {};
  if (::stat(folder.c_str(), &info) != 0) return std::strerror(errno);
  if (!S_ISDIR(info.st_mode)) return "not a folder";
  if (info.st_uid != ::geteuid()) return "it belongs to another user";
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) return "others may write to it";
  return "";
}

std::string entry_key(const std::string& dtype, const std::string& site) { return dtype + '\t' + site; }

bool trusted(const Decision& decision, std::int64_t now_seconds) {
  const std::int64_t age = now_seconds - decision.decided_at;
  return age >= 0 && age < (decision.choice == "stock" ? kStockTrustSeconds : kChoiceTrustSeconds);
}

/// Calls visit(line) for each complete line of `text`; what follows the last line feed is a line that is being written.
template <typename Visit>
void each_line(std::string_view text, Visit visit) {
  for (std::size_t end; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1)) visit(text.substr(0, end));
}

/// Fewer bytes where the file ends or cannot be read.
std::string read_at(int fd, std::size_t from, std::size_t size) {
  std::string text(size, '\0');
  std::size_t have = 0;
  while (have < size) {
    const ssize_t n = ::pread(fd, text.data() + have, size - have, static_cast<off_t>(from + have));
    if (n <= 0) break;
    have += static_cast<std::size_t>(n);
  }
  text.resize(have);
  return text;
}

/// At the end of the file; false and errno where it is not there afterwards. Where files may not grow so large (ulimit -f), writing would
/// send SIGXFSZ, which ends a program that does not expect it.
bool append_whole(int fd, std::string_view text) {
  struct stat info {};
  rlimit most{};
  if (::fstat(fd, &info) != 0) return false;
  if (::getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur != RLIM_INFINITY &&
      static_cast<rlim_t>(info.st_size) + text.size() > most.rlim_cur) {
    errno = EFBIG;
    return false;
  }
  const ssize_t written = ::write(fd, text.data(), text.size());
  if (written >= 0 && written != static_cast<ssize_t>(text.size())) errno = ENOSPC;
  return written == static_cast<ssize_t>(text.size());
}

/// A new file beside `path`, under a name for this process. In containers processes have the same few numbers again and again: what one
/// left that was killed is in the way of the next, and goes once it is so old that nobody can be writing it.
int open_fresh(const std::string& path, std::string* name) {
  constexpr std::time_t kAbandonedSeconds = 60;
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
  *name = path + '.' + std::to_string(::getpid());
  const int fd = ::open(name->c_str(), kFlags, 0600);
  struct stat info {};
  if (fd >= 0 || errno != EEXIST || ::lstat(name->c_str(), &info) != 0) return fd;
  if (std::time(nullptr) - info.st_mtime < kAbandonedSeconds || ::unlink(name->c_str()) != 0) return -1;
  return ::open(name->c_str(), kFlags, 0600);
}

}  // namespace

CachePlace cache_place() {
  CachePlace place;
  place.head = "# ipexrun decisions 1 | ipexrun " IPEXRUN_VERSION " | " + cpu_model();
  const auto asked = env::get(env::Id::kCache);
  if (asked && *asked == "off") return place;
  std::string folder = asked && !asked->empty() ? absolute(*asked) : "";
  if (!asked || asked->empty()) {
    const auto xdg = env::get_named("XDG_CACHE_HOME");
    const auto home = env::get_named("HOME");
    if (xdg && xdg->front() == '/') {
      folder = *xdg + "/ipexrun";
    } else if (home && home->front() == '/') {
      folder = *home + "/.cache/ipexrun";
    } else {
      return place;
    }
  }
  const bool made = make_folder(folder);
  const std::string why = made ? objection(folder) : std::strerror(errno);
  if (why.empty()) {
    place.folder = folder;
  } else {
    place.problem = "'" + folder + "': " + why;
  }
  return place;
}

DecisionCache::DecisionCache(CachePlace place) : place_(std::move(place)) {
  if (place_.folder.empty()) return;
  std::array<char, 48> name{};
  std::snprintf(name.data(), name.size(), "/decisions-%016llx", static_cast<unsigned long long>(hash_of(place_.head)));
  path_ = place_.folder + name.data();
}

bool DecisionCache::read_file(std::string* text, bool* cut) {
  const int fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) {
    if (errno != ENOENT) log::info("remembered decisions are not used: '" + path_ + "': " + std::strerror(errno));
    return false;
  }
  struct stat info {};
  bool ours = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == ::geteuid();
  if (ours) {
    const std::string head = place_.head + '\n';
    // Nothing at all is in what a disk lost that failed while the file was new: remember() begins it anew.
    ours = info.st_size == 0 || read_at(fd, 0, head.size()) == head;
    const auto size = static_cast<std::size_t>(info.st_size);
    const std::size_t lines = size - std::min(size, head.size());
    *cut = lines > kMostCacheBytes;
    if (ours) *text = read_at(fd, *cut ? size - kMostCacheBytes : head.size(), std::min(lines, kMostCacheBytes));
    if (*cut) text->erase(0, std::min(text->size(), text->find('\n') + 1));  // the rest of a line
  }
  ::close(fd);
  if (ours) return true;
  log::warn("remembered decisions are not used: '" + path_ + "' is not a file of ours (remove it to start afresh)");
  writable_ = false;  // what is in there belongs to somebody
  return false;
}

void DecisionCache::load(std::int64_t now_seconds) {
  {
    const std::lock_guard lock(mutex_);
    if (loaded_) return;
    loaded_ = true;
  }
  if (!place_.problem.empty()) log::info("decisions are not remembered: " + place_.problem);
  std::string text;
  bool cut = false;
  if (path_.empty() || !read_file(&text, &cut)) return;
  std::map<std::string, Entry> found;
  std::size_t lines = 0;
  each_line(text, [&](std::string_view line) {
    ++lines;
    Decision decision;
    if (!parse_decision_line(line, &decision)) return;
    const std::string key = entry_key(decision.dtype, decision.site.text());
    if (trusted(decision, now_seconds)) {
      found[key] = {std::move(decision), false};
    } else {
      found.erase(key);  // an old line takes back what came before it
    }
  });
  {
    const std::lock_guard lock(mutex_);
    entries_.merge(found);  // pinned ones, if they came first, stay
  }
  if (cut || lines > kMostCacheLines) rewrite();
}

void DecisionCache::load_pinned(const std::string& path, std::string_view isa, std::string_view torch) {
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) {
    log::warn("the config's decisions are not used: '" + path + "': " + std::strerror(errno));
    return;
  }
  std::string text;
  std::array<char, 4096> part{};
  for (std::size_t n; (n = std::fread(part.data(), 1, part.size(), file)) > 0 && text.size() < kMostCacheBytes;)
    text.append(part.data(), n);
  std::fclose(file);
  std::size_t all = 0;
  std::size_t foreign = 0;
  std::string for_what;  // the first of those
  const std::lock_guard lock(mutex_);
  each_line(text, [&](std::string_view line) {
    Decision decision;
    ++all;
    if (!parse_decision_line(line, &decision)) {
      log::warn("a decision of the config is not used: '" + std::string(line) + "'");
      return;
    }
    if (decision.site.isa != isa || decision.site.torch != torch) {
      if (foreign++ == 0) for_what = "torch " + decision.site.torch + " and " + decision.site.isa;
    }
    const std::string key = entry_key(decision.dtype, decision.site.text());
    entries_[key] = {std::move(decision), true};
  });
  if (foreign == 0) return;
  const std::string many = foreign == all ? "the config's decisions are"
                                          : std::to_string(foreign) + " of the config's " + std::to_string(all) + " decisions are";
  log::warn(many + " not used: they are for " + for_what + ", this is torch " + std::string(torch) + " and " + std::string(isa));
}

bool DecisionCache::find(const std::string& site, const std::string& dtype, Decision* out, bool* pinned) const {
  const std::lock_guard lock(mutex_);
  const auto entry = entries_.find(entry_key(dtype, site));
  if (entry == entries_.end()) return false;
  *out = entry->second.decision;
  *pinned = entry->second.pinned;
  return true;
}

std::size_t DecisionCache::count() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

bool DecisionCache::knows(const std::string& op) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(entries_.begin(), entries_.end(), [&op](const auto& entry) { return entry.second.decision.site.op.starts_with(op); });
}

/// Another process may make it at the same moment: the file appears whole, under its name, or not at all.
bool DecisionCache::make_file() {
  std::string fresh;
  const int fd = open_fresh(path_, &fresh);
  if (fd < 0) return false;
  const bool whole = append_whole(fd, place_.head + '\n');
  ::close(fd);
  const bool there = whole && (::link(fresh.c_str(), path_.c_str()) == 0 || errno == EEXIST);
  ::unlink(fresh.c_str());
  return there;
}

void DecisionCache::remember(const Decision& decision) {
  {
    const std::lock_guard lock(mutex_);
    Entry& entry = entries_[entry_key(decision.dtype, decision.site.text())];
    if (entry.pinned) return;
    entry.decision = decision;
    if (path_.empty() || !writable_) return;
  }
  constexpr int kFlags = O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW;
  int fd = ::open(path_.c_str(), kFlags);
  if (fd < 0 && errno == ENOENT && make_file()) fd = ::open(path_.c_str(), kFlags);
  struct stat info {};
  const bool empty = fd >= 0 && ::fstat(fd, &info) == 0 && info.st_size == 0;
  const bool written = fd >= 0 && append_whole(fd, (empty ? place_.head + '\n' : "") + decision_line(decision) + '\n');
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (written) return;
  const std::lock_guard lock(mutex_);
  writable_ = false;
  log::info("decisions of this process are not remembered: '" + path_ + "': " + std::strerror(error));
}

/// Lines that other processes append to the old file meanwhile are lost: they are measured again.
void DecisionCache::rewrite() {
  const int old = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (old < 0) return;
  // Where the file system has no locks two may do it at once: each whole, under its own name.
  if (::flock(old, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) {
    std::string text = place_.head + '\n';
    {
      const std::lock_guard lock(mutex_);
      std::vector<const Decision*> kept;
      for (const auto& [key, entry] : entries_)
        if (!entry.pinned) kept.push_back(&entry.decision);
      std::stable_sort(kept.begin(), kept.end(), [](const Decision* a, const Decision* b) { return a->decided_at > b->decided_at; });
      kept.resize(std::min(kept.size(), kMostKept));
      for (const Decision* one : kept) text += decision_line(*one) + '\n';
    }
    std::string fresh;
    const int fd = open_fresh(path_, &fresh);
    if (fd >= 0) {
      const bool whole = append_whole(fd, text);
      ::close(fd);
      if (!whole || ::rename(fresh.c_str(), path_.c_str()) != 0) ::unlink(fresh.c_str());
    }
  }
  ::close(old);
}

void DecisionCache::stop_writing() noexcept { writable_ = false; }

}  // namespace ipexrun::preload
