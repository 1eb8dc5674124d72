#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <thread>

#include "configs/base/log.h"
#include "configs/contract/env.h"
#include "tuner/run/trial_runner.h"

namespace ipexrun::tuner {
namespace {

constexpr int kMostCpus = 1 << 16;
/// Short: between two runs of the other study there are only some milliseconds, and it shall not have the cores for ever.
constexpr std::chrono::milliseconds kTryEvery{10};

/// One file a user and machine: XDG_RUNTIME_DIR, which two workers of one user may have differently, only where /tmp cannot be used.
launcher::Fd open_lock_file() {
  const std::string name = "ipexrun-trials-" + std::to_string(::getuid()) + ".lock";
  for (const std::string& folder : {std::string("/tmp"), env::get_named("XDG_RUNTIME_DIR").value_or("")}) {
    if (folder.empty()) continue;
    launcher::Fd fd(::open((folder + "/" + name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    struct stat info {};
    if (fd.open() && ::fstat(fd.get(), &info) == 0 && info.st_uid == ::getuid()) return fd;
  }
  return {};
}

bool lock_range(int fd, int first, int length) {
  struct flock range {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  range.l_start = first;
  range.l_len = length;
  return ::fcntl(fd, F_OFD_SETLK, &range) == 0 || (errno != EAGAIN && errno != EACCES);
}

}  // namespace

CpuLock::CpuLock(const std::vector<int>& cpus, const std::function<bool()>& stop) : fd_(open_lock_file()) {
  bool said = false;
  while (fd_.open() && !taken_) {
    taken_ = cpus.empty() && lock_range(fd_.get(), 0, kMostCpus);
    bool all = !cpus.empty();
    for (const int cpu : cpus) all = all && lock_range(fd_.get(), cpu, 1);
    taken_ = taken_ || all;
    if (taken_) break;
    // All or none: two that hold half each would wait for ever.
    struct flock range {};
    range.l_type = F_UNLCK;
    range.l_whence = SEEK_SET;
    ::fcntl(fd_.get(), F_OFD_SETLK, &range);
    if (stop()) return;
    if (!said) log::warn("waiting: a trial of another search has these cores");
    said = true;
    std::this_thread::sleep_for(kTryEvery);
  }
  taken_ = taken_ || !fd_.open();
}

}  // namespace ipexrun::tuner
