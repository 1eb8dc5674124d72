#include "launcher/run/print.h"

#include "launcher/run/posix.h"

namespace ipexrun::launcher {

Status print_text(const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(STDOUT_FILENO, text.data() + done, text.size() - done);
    if (n >= 0) {
      done += static_cast<std::size_t>(n);
    } else if (errno == EPIPE || errno == EBADF) {
      return ok_status();
    } else if (errno != EINTR) {
      return Error{kExitFailure, "cannot write to stdout: " + errno_text(errno), std::to_string(text.size() - done) + " bytes are missing"};
    }
  }
  return ok_status();
}

}  // namespace ipexrun::launcher
