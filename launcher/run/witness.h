// Was a signal sent to this process alone, or to its whole group? The kernel does not say. A second process of the group, which only waits
// with all signals blocked, does: what was sent to the group is pending in it.
#pragma once

#include <sys/types.h>

namespace ipexrun::launcher {

/// Of the thread that made it; ends with its process. Where no process can be made or /proc is not there it saw nothing.
class Witness {
 public:
  Witness() { start(); }
  ~Witness() { end(); }
  Witness(const Witness&) = delete;
  Witness& operator=(const Witness&) = delete;

  /// Whether `signal`, which arrived here just now, went to the whole group: to each of its processes one after the other, so up to 20 ms
  /// are waited for it.
  [[nodiscard]] bool saw(int signal);
  /// There is none any more.
  void end();

 private:
  void start();

  pid_t pid_ = -1;
};

}  // namespace ipexrun::launcher
