// The program's output on its way to the user's terminal, without ever holding the program up more than the terminal itself does.
//
// A log file is written by the program directly; LogFollower reads it behind the program's back, so a slow, closed or killed launcher
// loses nothing. A captured stdout is a pipe; PipePump keeps a copy. Both hand their bytes to a Sink. One thread; nothing blocks.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "configs/base/result.h"
#include "launcher/run/posix.h"

namespace ipexrun::launcher {

/// A bounded queue in front of a descriptor of the launcher (its stdout), written only as far as that takes it without blocking.
class Sink {
 public:
  /// `fd` stays the caller's; -1 makes a sink that swallows everything.
  explicit Sink(int fd) : fd_(fd) {}

  /// Queues `text`. Callers ask has_room() before they read more; text handed over is never dropped, except by a closed sink.
  void put(std::string_view text);
  /// Writes what the descriptor takes now. A reader that went away (EPIPE, EIO) closes the sink.
  void pump();

  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] bool closed() const { return fd_ < 0; }
  [[nodiscard]] bool has_room() const { return closed() || queue_.size() - sent_ < kRoomBytes; }
  [[nodiscard]] bool empty() const { return sent_ == queue_.size(); }

 private:
  static constexpr std::size_t kRoomBytes = 1u << 20;
  int fd_;
  std::string queue_;
  std::size_t sent_ = 0;  ///< bytes of queue_ that are out already
};

/// Passes what is appended to a log file on to a sink, from the end the file had at the start.
class LogFollower {
 public:
  /// `fd` is open for reading. With a prefix ("[0] ") only complete lines are passed on, each behind the prefix, so that the lines of
  /// several instances do not mix; without one bytes are passed on as they come.
  LogFollower(Fd fd, off_t start, std::string prefix) : fd_(std::move(fd)), at_(start), prefix_(std::move(prefix)) {}

  /// Reads what is there while the sink has room, up to a bound. True when it came to the end of the file.
  bool step(Sink& sink);
  /// The unfinished last line, once no more can come.
  void finish(Sink& sink);

 private:
  void pass(std::string_view text, Sink& sink);

  Fd fd_;
  off_t at_ = 0;
  std::string prefix_;
  std::string partial_;  ///< start of a line whose end was not written yet
};

/// Reads a pipe, keeps a copy in a file and passes it on to a sink.
class PipePump {
 public:
  /// `pipe` is the reading end, non-blocking; `copy` may be closed (no copy).
  PipePump(Fd pipe, Fd copy) : pipe_(std::move(pipe)), copy_(std::move(copy)) {}

  [[nodiscard]] int fd() const { return pipe_.get(); }
  [[nodiscard]] bool at_end() const { return !pipe_.open(); }
  /// Reads what is there while the sink has room, up to a bound. True when there was no more to read. A copy that
  /// cannot be written is given up with one line: the program goes on.
  bool step(Sink& sink);

 private:
  void keep(std::string_view text);

  Fd pipe_;
  Fd copy_;
};

/// Opens (creates, 0644) `path` for appending, making the missing folders above it (0755). Error: what was refused, kExitFailure.
Result<Fd> open_log(const std::string& path);

}  // namespace ipexrun::launcher
