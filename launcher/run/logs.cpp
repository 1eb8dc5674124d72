#include "launcher/run/logs.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>

namespace ipexrun::launcher {
namespace {

constexpr std::size_t kReadBytes = 64u << 10;
constexpr int kMostRunsASecond = 10'000;
constexpr std::size_t kLongestLine = 64u << 10;  // shown behind one prefix: a program may write for ever without a line end
constexpr int kReadsAStep = 16;                  // then the caller looks at signals again, however fast the program writes

/// True when `fd` takes at least PIPE_BUF bytes at once (pipes guarantee that much behind POLLOUT) or reports an error that write
/// will name. The descriptor is shared with the user's shell, so it is not made non-blocking.
bool can_write(int fd) {
  pollfd entry{fd, POLLOUT, 0};
  return ::poll(&entry, 1, 0) == 1;
}

/// "a.log" -> "a.2.log"
std::string numbered(const std::string& path, int number) {
  if (number == 1) return path;
  const std::filesystem::path whole = path;
  return (whole.parent_path() / whole.stem()).string() + "." + std::to_string(number) + whole.extension().string();
}

}  // namespace

void Sink::put(std::string_view text) {
  if (closed()) return;
  queue_.append(text);
}

void Sink::pump() {
  while (!closed() && !empty() && can_write(fd_)) {
    const std::size_t n = std::min<std::size_t>(queue_.size() - sent_, PIPE_BUF);
    if (before_write_) before_write_();
    const ssize_t done = ::write(fd_, queue_.data() + sent_, n);
    if (done > 0) {
      at_line_start_ = queue_[sent_ + static_cast<std::size_t>(done) - 1] == '\n';
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
  if (partial_.size() >= kLongestLine) finish(sink);
}

/// Somebody emptied the file (logrotate's copytruncate, a shell's `: > file`): what comes now stands at its start.
bool LogFollower::was_cut() {
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0 || info.st_size >= at_) return false;
  at_ = 0;
  return true;
}

bool LogFollower::step(Sink& sink) {
  if (sink.closed()) return true;
  std::array<char, kReadBytes> buffer;
  for (int reads = 0; reads < kReadsAStep && sink.has_room(); ++reads) {
    const ssize_t n = ::pread(fd_.get(), buffer.data(), buffer.size(), at_);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0 && was_cut()) continue;
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

void LogFile::lose(std::size_t bytes, int error) {
  if (lost_bytes_ == 0) error_to_tell_ = error;
  last_error_ = error;
  lost_bytes_ += bytes;
  unmarked_bytes_ += bytes;
}

/// False when there is still no room. A part of the mark is taken back: the file is not to end in half a sentence.
bool LogFile::mark_gap() {
  const std::string mark = (at_line_start_ ? "" : "\n") + std::string("[ipexrun: ") + std::to_string(unmarked_bytes_) +
                           " bytes are missing here: " + errno_text(last_error_) + "]\n";
  struct stat info {};
  const bool known = ::fstat(fd_.get(), &info) == 0;
  const ssize_t n = ::write(fd_.get(), mark.data(), mark.size());
  if (n == static_cast<ssize_t>(mark.size())) {
    unmarked_bytes_ = 0;
    at_line_start_ = true;
    return true;
  }
  if (n > 0 && known) (void)!::ftruncate(fd_.get(), info.st_size);
  return false;
}

std::size_t LogFile::write(std::string_view text) {
  std::size_t done = 0;
  if (unmarked_bytes_ != 0 && !mark_gap()) {
    lose(text.size(), last_error_);
    return 0;
  }
  while (done < text.size()) {
    const ssize_t n = ::write(fd_.get(), text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      lose(text.size() - done, n < 0 ? errno : ENOSPC);
      break;
    }
    done += static_cast<std::size_t>(n);
    at_line_start_ = text[done - 1] == '\n';
  }
  return done;
}

void LogFile::end_line() {
  if (!at_line_start_) write("\n");
}

void PipePump::take(std::string_view text, Sink& sink) {
  const std::size_t kept = copy_ ? copy_->write(text) : 0;
  if (!follower_) {
    sink.put(text);
  } else {
    held_ = text.substr(kept);
  }
}

/// What the file did not take is shown behind what it did. False while that must wait for the sink.
bool PipePump::show_held(Sink& sink) {
  if (held_.empty()) return true;
  if (!follower_->step(sink) || !sink.has_room()) return false;
  follower_->pass(held_, sink);
  held_.clear();
  return true;
}

/// True when there is no more to read now.
bool PipePump::read_pipe(Sink& sink) {
  std::array<char, kReadBytes> buffer;
  for (int reads = 0; reads < kReadsAStep && !at_end(); ++reads) {
    if (follower_ ? !show_held(sink) : !sink.has_room()) return false;
    const std::size_t wanted = std::min(buffer.size(), left_.value_or(buffer.size()));
    const ssize_t n = wanted == 0 ? 0 : ::read(pipe_.get(), buffer.data(), wanted);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN && !left_) return true;
    if (n <= 0) {
      pipe_.reset();
      return true;
    }
    if (left_) *left_ -= static_cast<std::size_t>(n);
    take({buffer.data(), static_cast<std::size_t>(n)}, sink);
    sink.pump();
  }
  return at_end();
}

bool PipePump::step(Sink& sink) {
  const bool all_read = read_pipe(sink);
  const bool all_shown = !follower_ || (show_held(sink) && follower_->step(sink));
  return all_read && all_shown;
}

void PipePump::expect_end() {
  int bytes = 0;
  if (!at_end() && !left_ && ::ioctl(pipe_.get(), FIONREAD, &bytes) == 0) left_ = static_cast<std::size_t>(std::max(bytes, 0));
}

void PipePump::finish(Sink& sink) {
  if (follower_) follower_->finish(sink);
}

void PipePump::attach(Fd pipe) {
  pipe_ = std::move(pipe);
  left_.reset();
  if (copy_) copy_->end_line();
}

Result<OpenLog> open_log(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code failure;
  if (!folder.empty() && !std::filesystem::is_directory(folder, failure)) {
    std::filesystem::create_directories(folder, failure);
    if (failure) return Error{kExitFailure, "cannot create log folder '" + folder.string() + "': " + failure.message(), "see --log-dir"};
  }
  for (int number = 1;; ++number) {
    OpenLog log{Fd(), numbered(path, number)};
    log.fd = Fd(::open(log.path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0644));
    if (!log.fd.open()) {
      const int error = errno;
      return Error{kExitFailure, "cannot write log file '" + log.path + "': " + errno_text(error), hint_for(error, "see --log-dir")};
    }
    // In use: another run takes another name, and its --log-keep leaves this one alone. File systems without locks cannot tell.
    const bool taken = ::flock(log.fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!taken || number == kMostRunsASecond) return log;
  }
}

}  // namespace ipexrun::launcher
