// What operators warn of (TORCH_WARN) while a captured form runs. Called from Python, an operator's warning becomes one of Python's; a form
// of ours runs below that, where it would be a line on stderr that no filter of the program's sees.
//
// Thread rule: each thread for itself. Regions may lie within one another; the end of an inner one gives what was kept so far.
#pragma once

#include <string>

namespace ipexrun::preload {

/// From here on this thread's warnings are kept.
void warned_begin() noexcept;

/// Ends the innermost region: its messages, as torch words them for Python, each ended by a zero.
[[nodiscard]] std::string warned_end() noexcept;

/// A region.
class KeptWarnings {
 public:
  KeptWarnings() noexcept { warned_begin(); }
  KeptWarnings(const KeptWarnings&) = delete;
  KeptWarnings& operator=(const KeptWarnings&) = delete;
  ~KeptWarnings() {
    if (open_) (void)warned_end();
  }

  [[nodiscard]] std::string end() noexcept {
    open_ = false;
    return warned_end();
  }

 private:
  bool open_ = true;
};

}  // namespace ipexrun::preload
