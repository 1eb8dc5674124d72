#include "launcher/run/logs.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>

#include "configs/base/log.h"

namespace ipexrun::launcher {
namespace {

constexpr std::size_t kReadBytes = 64u << 10;
constexpr int kReadsAStep = 16;  // then the caller looks at signals again, however fast the program writes

/// True when `fd` takes at least PIPE_BUF bytes at once (pipes guarantee that much behind POLLOUT) or reports an error that write
/// will name. The descriptor is shared with the user's shell, so it is not made non-blocking.
bool can_write(int fd) {
  pollfd entry{fd, POLLOUT, 0};
  return ::poll(&entry, 1, 0) == 1;
}

}  // namespace

void Sink::put(std::string_view text) {
  if (closed()) return;
  queue_.append(text);
}

void Sink::pump() {
  while (!closed() && !empty() && can_write(fd_)) {
    const std::size_t n = std::min<std::size_t>(queue_.size() - sent_, PIPE_BUF);
    const ssize_t done = ::write(fd_, queue_.data() + sent_, n);
    if (done > 0) {
      sent_ += static_cast<std::size_t>(done);
    } else if (done < 0 && errno == EINTR) {
      continue;
    } else if (done < 0 && errno == EAGAIN) {
      break;
    } else {
      fd_ = -1;
    }
  }
  if (closed() || empty()) {
    queue_.clear();
    sent_ = 0;
  } else if (sent_ > kRoomBytes) {
    queue_.erase(0, sent_);
    sent_ = 0;
  }
}

void LogFollower::pass(std::string_view text, Sink& sink) {
  if (prefix_.empty()) {
    sink.put(text);
    return;
  }
  for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    sink.put(prefix_);
    sink.put(partial_);
    sink.put(text.substr(0, end + 1));
    partial_.clear();
    text.remove_prefix(end + 1);
  }
  partial_.append(text);
}

bool LogFollower::step(Sink& sink) {
  if (sink.closed()) return true;
  std::array<char, kReadBytes> buffer;
  for (int reads = 0; reads < kReadsAStep && sink.has_room(); ++reads) {
    const ssize_t n = ::pread(fd_.get(), buffer.data(), buffer.size(), at_);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return true;
    at_ += n;
    pass({buffer.data(), static_cast<std::size_t>(n)}, sink);
    sink.pump();
  }
  return false;
}

void LogFollower::finish(Sink& sink) {
  if (partial_.empty()) return;
  sink.put(prefix_);
  sink.put(partial_);
  sink.put("\n");
  partial_.clear();
}

void PipePump::keep(std::string_view text) {
  while (copy_.open() && !text.empty()) {
    const ssize_t n = ::write(copy_.get(), text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      log::warn("the copy of the program's output ends here: " + errno_text(errno));
      copy_.reset();
      return;
    }
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

bool PipePump::step(Sink& sink) {
  std::array<char, kReadBytes> buffer;
  for (int reads = 0; reads < kReadsAStep && !at_end() && sink.has_room(); ++reads) {
    const ssize_t n = ::read(pipe_.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return true;
    if (n <= 0) {
      pipe_.reset();
      return true;
    }
    const std::string_view text(buffer.data(), static_cast<std::size_t>(n));
    keep(text);
    sink.put(text);
    sink.pump();
  }
  return at_end();
}

Result<Fd> open_log(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code failure;
  if (!folder.empty() && !std::filesystem::is_directory(folder, failure)) {
    std::filesystem::create_directories(folder, failure);
    if (failure) return Error{kExitFailure, "cannot create log folder '" + folder.string() + "': " + failure.message(), "see --log-dir"};
  }
  Fd fd(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0644));
  if (!fd.open()) return Error{kExitFailure, "cannot write log file '" + path + "': " + errno_text(errno), "see --log-dir"};
  return fd;
}

}  // namespace ipexrun::launcher
