// One line at the bottom of a terminal that says how the instances are doing, redrawn in place and gone before anything else is written.
#pragma once

#include <chrono>
#include <string>

#include "launcher/run/posix.h"

namespace ipexrun::launcher {

/// What the line says.
struct ProgressFacts {
  int running = 0;
  int instances = 0;
  int restarting = 0;           ///< of those not running: wait to be started again
  std::chrono::seconds age{0};  ///< since the start of the run
  std::string news;             ///< the last thing that happened, "" = nothing yet
};

/// "ipexrun: 3 of 4 running, 12 s, instance 2 ended (0)", at most `columns` wide.
std::string progress_text(const ProgressFacts& facts, int columns);

/// "12 s", "3 min 05 s", "2 h 03 min"
std::string age_text(std::chrono::seconds age);

class ProgressLine {
 public:
  /// `fd` is a terminal, or -1: nothing is ever drawn. `foreground` is the process group that must own the terminal while it is drawn.
  ProgressLine(int fd, pid_t foreground) : fd_(fd), foreground_(foreground) {}
  ~ProgressLine() { hide(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  [[nodiscard]] bool possible() const { return fd_ >= 0; }
  /// Draws, in place of what was drawn before.
  void show(const ProgressFacts& facts);
  /// Takes it off the terminal.
  void hide();

 private:
  int fd_;
  pid_t foreground_;
  std::string drawn_;  ///< "" = the terminal is clean
};

/// stderr when it is a terminal that understands control characters, else -1.
int progress_terminal();

}  // namespace ipexrun::launcher
