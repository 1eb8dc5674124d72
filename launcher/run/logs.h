// The program's output on its way to its log file and to the user's terminal.
//
// It comes through a pipe, so that a full disk costs the log file and not the program. What a log file got is shown from there
// (LogFollower), so a slow, stopped or closed terminal holds nobody up and loses nothing; only while the file cannot be written does the
// terminal set the pace. One thread; nothing here waits for a reader.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
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
  /// What came out last ends a line, so that a line of ours may follow.
  [[nodiscard]] bool at_line_start() const { return at_line_start_; }
  /// Called before bytes go out: takes a status line off the terminal.
  void before_write(std::function<void()> call) { before_write_ = std::move(call); }

 private:
  static constexpr std::size_t kRoomBytes = 1u << 20;
  int fd_;
  std::string queue_;
  std::size_t sent_ = 0;  ///< bytes of queue_ that are out already
  bool at_line_start_ = true;
  std::function<void()> before_write_;
};

/// A file that keeps a copy of the program's output. A write that fails (no space, quota, limit) costs those bytes: they are counted, the
/// next ones are tried again, and a line in the file says how many are missing there.
class LogFile {
 public:
  LogFile(Fd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  /// Returns how many bytes of `text`, from its start, are in the file.
  std::size_t write(std::string_view text);
  /// Ends an unfinished line, before another process goes on writing.
  void end_line();

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::uint64_t lost_bytes() const { return lost_bytes_; }
  /// errno of the first failure, once; 0 = none, or told already.
  [[nodiscard]] int take_error() { return std::exchange(error_to_tell_, 0); }

 private:
  bool mark_gap();
  void lose(std::size_t bytes, int error);

  Fd fd_;
  std::string path_;
  bool at_line_start_ = true;
  std::uint64_t lost_bytes_ = 0;
  std::uint64_t unmarked_bytes_ = 0;  ///< lost since the last mark in the file
  int last_error_ = 0;
  int error_to_tell_ = 0;
};

/// Passes what is appended to a log file on to a sink, from the end the file had at the start.
class LogFollower {
 public:
  /// `fd` is open for reading. With a prefix ("[0] ") only complete lines are passed on, each behind the prefix, so that the lines of
  /// several instances do not mix; without one bytes are passed on as they come.
  LogFollower(Fd fd, off_t start, std::string prefix) : fd_(std::move(fd)), at_(start), prefix_(std::move(prefix)) {}

  /// Reads what is there while the sink has room, up to a bound. True when it came to the end of the file.
  bool step(Sink& sink);
  /// Passes on what could not be written to the file.
  void pass(std::string_view text, Sink& sink);
  /// The unfinished last line, once no more can come.
  void finish(Sink& sink);

 private:
  bool was_cut();

  Fd fd_;
  off_t at_ = 0;
  std::string prefix_;
  std::string partial_;  ///< start of a line whose end was not written yet
};

/// Reads a pipe, keeps a copy in a file and passes it on to a sink. Without a follower the sink's reader sets the pace, as it would for
/// the program alone; with one, the pipe is read whether or not anybody reads the sink.
class PipePump {
 public:
  /// `pipe` is the reading end, non-blocking; `copy` and `follower` may be null.
  PipePump(Fd pipe, std::unique_ptr<LogFile> copy, std::unique_ptr<LogFollower> follower = nullptr)
      : pipe_(std::move(pipe)), copy_(std::move(copy)), follower_(std::move(follower)) {}

  [[nodiscard]] int fd() const { return pipe_.get(); }
  [[nodiscard]] bool at_end() const { return !pipe_.open(); }
  [[nodiscard]] bool reads_ahead() const { return follower_ != nullptr; }
  /// The file that keeps a copy, nullptr = none.
  [[nodiscard]] LogFile* copy() const { return copy_.get(); }

  /// Reads what is there, up to a bound. True when there was no more to read or to show.
  bool step(Sink& sink);
  /// The program has ended: what the pipe holds now is the last that counts, though a descendant may still have it open.
  void expect_end();
  /// The unfinished last line, once no more can come.
  void finish(Sink& sink);
  /// The next start of the same instance.
  void attach(Fd pipe);

 private:
  bool read_pipe(Sink& sink);
  void take(std::string_view text, Sink& sink);
  bool show_held(Sink& sink);

  Fd pipe_;
  std::unique_ptr<LogFile> copy_;
  std::unique_ptr<LogFollower> follower_;
  std::string held_;                 ///< neither in the file nor shown yet: nothing more is read until it is
  std::optional<std::size_t> left_;  ///< bytes still to be read; nullopt = until the pipe ends
};

struct OpenLog {
  Fd fd;
  std::string path;
};

/// Opens (creates, 0644) `path` for appending, making the missing folders above it (0755), and locks it. Where another run is writing to it
/// (started in the same second), NAME.2.log is taken, and so on. Error: what was refused, kExitFailure.
Result<OpenLog> open_log(const std::string& path);

}  // namespace ipexrun::launcher
