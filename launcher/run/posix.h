// Small owners of kernel resources for the runner.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace ipexrun::launcher {

/// A file descriptor that is closed when its owner goes away.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool open() const { return fd_ >= 0; }
  void reset() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

/// As many descriptors as this process may have, for as long as it lives: the launcher holds several for each instance, and shells set
/// 1024, which fewer than 256 instances with logs use up. Programs get the caller's own limit.
class FileLimit {
 public:
  FileLimit() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit most{before_.rlim_max, before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &most);
  }
  ~FileLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

  [[nodiscard]] const rlimit& before() const { return before_; }

 private:
  rlimit before_{};
};

/// Text of an errno value.
inline std::string errno_text(int error) { return std::strerror(error); }

/// What to do where no descriptor could be opened; else `otherwise`.
inline std::string hint_for(int error, const std::string& otherwise = "") {
  return error == EMFILE ? "fewer instances, or a higher hard limit (ulimit -Hn)" : otherwise;
}

}  // namespace ipexrun::launcher
