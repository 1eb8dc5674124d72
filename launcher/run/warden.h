// No orphan, whatever happens to the launcher: it runs as two processes.
//
//   shell -- warden (the process that the shell knows; only waits, beside witness.h's) -- launcher (everything else) -- instances -- their
//   descendants
//
// Each of the two adopts the orphans below it. When the warden is killed, even by SIGKILL, the launcher sees the end of a pipe and
// ends everything; when the launcher is killed, the warden does. docs/decisions/0009-supervision.md says what else was considered.
#pragma once

#include <sys/types.h>

#include "launcher/run/posix.h"

namespace ipexrun::launcher {

/// What the launcher knows of the process that waits for it.
struct Warden {
  pid_t pid = 0;  ///< 0 = there is none: this process is the one that the shell knows
  Fd life;        ///< reading end of a pipe that ends with the warden
};

/// Marks a signal that the warden passes on as one that its whole process group has got already: a key press, or sent to the group
/// (witness.h).
constexpr int kToWholeGroup = 1;

/// Makes this process the warden of a new one and returns only in that, which goes on as the launcher. Where no process can be made it
/// returns in this one, with pid 0.
Warden split_off_warden();

/// For its life the launcher is in a process group of its own, so that a signal to the whole group of the warden does not hit both.
class OwnGroup {
 public:
  explicit OwnGroup(const Warden* warden);
  ~OwnGroup();
  OwnGroup(const OwnGroup&) = delete;
  OwnGroup& operator=(const OwnGroup&) = delete;

  /// The group of the warden, which a single instance stays in (ctrl-C, ctrl-Z, input); -1 = it is the launcher's own.
  [[nodiscard]] pid_t callers() const { return before_; }

 private:
  pid_t before_ = -1;
};

}  // namespace ipexrun::launcher
