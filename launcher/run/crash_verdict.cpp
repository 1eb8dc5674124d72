#include "launcher/run/crash_verdict.h"

#include <fmt/format.h>
#include <string.h>

namespace ipexrun::launcher {

std::string crash_verdict(int instance, const IpexrunEventHeader& header) {
  if (header.crash_signal == 0) return "";
  const char* name = ::sigabbrev_np(header.crash_signal);
  const std::string signal = name == nullptr ? fmt::format("signal {}", header.crash_signal) : std::string("SIG") + name;
  const std::string who = header.crash_pid == header.root_pid ? fmt::format("instance {}", instance)
                                                              : fmt::format("process {} of instance {}", header.crash_pid, instance);
  const std::string where(header.crash_where, ::strnlen(header.crash_where, sizeof header.crash_where));
  std::string out = fmt::format("{} died of {}{}; ", who, signal, where.empty() ? "" : " in " + where);
  if (header.crash_frames <= 0) return out + "its stack could not be followed";
  if (header.crash_ours == 0) return out + fmt::format("no frame of its stack ({}) was ipexrun's", header.crash_frames);
  return out + fmt::format("{} of its {} frames {} ipexrun's: please report the stack above; --no-optimize runs without them",
                           header.crash_ours, header.crash_frames, header.crash_ours == 1 ? "was" : "were");
}

}  // namespace ipexrun::launcher
