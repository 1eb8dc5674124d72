// What the summary says of a crash that --crash-report recorded.
#include "launcher/run/crash_verdict.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cstring>

namespace ipexrun::launcher {
namespace {

IpexrunEventHeader crash(int frames, int ours, const char* where) {
  IpexrunEventHeader out{};
  out.root_pid = 100;
  out.crash_pid = 100;
  out.crash_signal = SIGSEGV;
  out.crash_frames = frames;
  out.crash_ours = ours;
  std::strncpy(out.crash_where, where, sizeof out.crash_where - 1);
  return out;
}

TEST(CrashVerdict, nothing_without_a_crash) { EXPECT_EQ(crash_verdict(0, IpexrunEventHeader{}), ""); }

TEST(CrashVerdict, frames_of_others) {
  EXPECT_EQ(crash_verdict(2, crash(12, 0, "libfoo.so+0x1139 (work)")),
            "instance 2 died of SIGSEGV in libfoo.so+0x1139 (work); no frame of its stack (12) was ipexrun's");
}

TEST(CrashVerdict, frames_of_ours) {
  EXPECT_EQ(crash_verdict(0, crash(12, 1, "")),
            "instance 0 died of SIGSEGV; 1 of its 12 frames was ipexrun's: please report the stack above; --no-optimize runs without them");
}

TEST(CrashVerdict, no_stack) {
  EXPECT_EQ(crash_verdict(0, crash(0, 0, "")), "instance 0 died of SIGSEGV; its stack could not be followed");
}

TEST(CrashVerdict, another_process_of_the_instance) {
  IpexrunEventHeader header = crash(3, 0, "");
  header.crash_pid = 200;
  EXPECT_EQ(crash_verdict(1, header), "process 200 of instance 1 died of SIGSEGV; no frame of its stack (3) was ipexrun's");
}

TEST(CrashVerdict, a_text_that_fills_its_field) {
  IpexrunEventHeader header = crash(3, 0, "");
  std::memset(header.crash_where, 'x', sizeof header.crash_where);  // no NUL: a foreign hand
  EXPECT_EQ(crash_verdict(0, header).find(std::string(sizeof header.crash_where, 'x')), std::strlen("instance 0 died of SIGSEGV in "));
}

}  // namespace
}  // namespace ipexrun::launcher
