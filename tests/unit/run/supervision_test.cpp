#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "launcher/machine/oom_kills.h"
#include "launcher/run/crash_note.h"
#include "launcher/run/log_rotation.h"
#include "launcher/run/logs.h"
#include "launcher/run/processes.h"
#include "launcher/run/progress.h"
#include "launcher/run/restart.h"
#include "tests/unit/run/temp_folder.h"

namespace ipexrun::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

TEST(Restarts, PausesDoubleUpToTheLongest) {
  EXPECT_EQ(pause_before(1, milliseconds(1000)), milliseconds(1000));
  EXPECT_EQ(pause_before(2, milliseconds(1000)), milliseconds(2000));
  EXPECT_EQ(pause_before(5, milliseconds(1000)), milliseconds(16'000));
  EXPECT_EQ(pause_before(6, milliseconds(1000)), kLongestPause);
  EXPECT_EQ(pause_before(1'000'000, milliseconds(1000)), kLongestPause);
  EXPECT_EQ(pause_before(1'000'000, milliseconds(0)), milliseconds(0));
}

TEST(Restarts, AreCountedForEachInstance) {
  const Restarts::Time now{};
  Restarts restarts(2, 2, milliseconds(1000));
  EXPECT_FALSE(restarts.waiting());
  EXPECT_EQ(restarts.plan(1, now), milliseconds(1000));
  EXPECT_EQ(restarts.plan(0, now + seconds(3)), milliseconds(1000));
  EXPECT_EQ(restarts.next(), now + seconds(1));
  EXPECT_FALSE(restarts.take_due(now).has_value());
  EXPECT_EQ(restarts.take_due(now + seconds(1)), 1u);
  EXPECT_FALSE(restarts.take_due(now + seconds(1)).has_value());
  EXPECT_TRUE(restarts.waits(0) && !restarts.waits(1));
  EXPECT_EQ(restarts.plan(1, now + seconds(9)), milliseconds(2000));
  EXPECT_EQ(restarts.take_due(now + seconds(99)), 0u);
  EXPECT_EQ(restarts.take_due(now + seconds(99)), 1u);
  EXPECT_FALSE(restarts.plan(1, now).has_value());  // used up
  EXPECT_EQ(restarts.made(1), 2);
}

TEST(Restarts, CancelledOnesNeverComeAndNoneFollow) {
  Restarts restarts(3, 5, milliseconds(1));
  restarts.plan(2, {});
  EXPECT_THAT(restarts.cancel(), ElementsAre(2u));
  EXPECT_FALSE(restarts.waiting());
  EXPECT_FALSE(restarts.plan(0, {}).has_value());
}

TEST(ProgressText, SaysWhatIsKnown) {
  ProgressFacts facts;
  facts.running = 3;
  facts.instances = 4;
  facts.age = seconds(12);
  EXPECT_EQ(progress_text(facts, 80), "ipexrun: 3 of 4 running, 12 s");
  facts.news = "instance 2 ended (0)";
  EXPECT_EQ(progress_text(facts, 80), "ipexrun: 3 of 4 running, 12 s, instance 2 ended (0)");
  facts.restarting = 1;
  EXPECT_EQ(progress_text(facts, 80), "ipexrun: 3 of 4 running, 1 to be restarted, 12 s, instance 2 ended (0)");
  EXPECT_EQ(progress_text(facts, 21), "ipexrun: 3 of 4 runn");  // the last column stays free
  EXPECT_EQ(progress_text(facts, 1), "");
  EXPECT_EQ(progress_text(facts, 0), "");
}

TEST(AgeText, GrowsWithTheAge) {
  EXPECT_EQ(age_text(seconds(59)), "59 s");
  EXPECT_EQ(age_text(seconds(65)), "1 min 05 s");
  EXPECT_EQ(age_text(seconds(3600)), "1 h 00 min");
  EXPECT_EQ(age_text(seconds(360'061)), "100 h 01 min");
}

TEST(LogName, IsTakenApart) {
  const auto name = parse_log_name("my_run_20261121T101500_instance_12_cores_0-3,8.log");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->prefix, "my_run");
  EXPECT_EQ(name->stamp, "20261121T101500");
  EXPECT_TRUE(parse_log_name("a_20261121T101500_instance_0_cores_0-to-43-44-cpus.log"));
  EXPECT_TRUE(parse_log_name("a_20261121T101500_instance_0_cores_.log"));
}

TEST(LogName, OfAnyOtherFormIsNotOurs) {
  for (const char* name :
       {"", ".log", "run.log", "_20261121T101500_instance_0_cores_0.log", "20261121T101500_instance_0_cores_0.log",
        "run_20261121T101500_instance_0_cores_0.log.gz", "run_20261121T101500_instance_x_cores_0.log",
        "run_20261121T101500_instance__cores_0.log", "run_20261121T101500_instance_0_cores_0;rm.log",
        "run_20261121-101500_instance_0_cores_0.log", "run_2026112T101500_instance_0_cores_0.log", "run_20261121T101500_instance_0.log",
        "run_20261121T101500_instance_0_cores_0", "run20261121T101500_instance_0_cores_0.log",
        "run_20261121T101500_instance_0_cores_0..log", "run_20261121T101500_instance_0_cores_0.2x.log"}) {
    EXPECT_FALSE(parse_log_name(name)) << name;
  }
}

std::vector<std::string> names_in(const TempFolder& folder) {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) out.push_back(entry.path().filename().string());
  return out;
}

std::string log_of(int day, int instance = 0, const std::string& prefix = "run") {
  return prefix + "_2026110" + std::to_string(day) + "T101500_instance_" + std::to_string(instance) + "_cores_0.log";
}

TEST(RemoveOldLogs, KeepsTheNewestRunsOfThatPrefix) {
  const TempFolder folder;
  for (int day = 1; day <= 4; ++day) {
    for (int i = 0; i < 2; ++i) folder.write(log_of(day, i), "");
  }
  folder.write(log_of(1, 0, "other"), "");
  std::filesystem::create_directory(folder.path(log_of(2, 7)));  // no file
  std::filesystem::create_symlink(folder.path(log_of(4)), folder.path(log_of(1, 8)));
  EXPECT_EQ(remove_old_logs(folder.path(log_of(4)), 0), 0);
  EXPECT_EQ(remove_old_logs(folder.path(log_of(4)), 2), 4);
  EXPECT_THAT(names_in(folder), UnorderedElementsAre(log_of(3, 0), log_of(3, 1), log_of(4, 0), log_of(4, 1), log_of(1, 0, "other"),
                                                     log_of(2, 7), log_of(1, 8)));
  EXPECT_EQ(remove_old_logs(folder.path(log_of(4)), 1), 2);
}

TEST(RemoveOldLogs, NeverThisRunsOwnWhateverTheClockSays) {
  const TempFolder folder;
  for (int day = 1; day <= 3; ++day) folder.write(log_of(day), "");
  EXPECT_EQ(remove_old_logs(folder.path(log_of(1)), 1), 2);
  EXPECT_THAT(names_in(folder), ElementsAre(log_of(1)));
}

TEST(RemoveOldLogs, TakesTheSecondRunOfASecondToo) {
  const TempFolder folder;
  for (const char* name : {"run_20261101T101500_instance_0_cores_0.log", "run_20261101T101500_instance_0_cores_0.2.log"})
    folder.write(name, "");
  folder.write(log_of(2), "");
  EXPECT_EQ(remove_old_logs(folder.path(log_of(2)), 1), 2);
}

TEST(RemoveOldLogs, LeavesWhatAnotherRunStillWrites) {
  const TempFolder folder;
  folder.write(log_of(2), "");
  const auto held = open_log(folder.path(log_of(1)));
  ASSERT_TRUE(held);
  EXPECT_EQ(remove_old_logs(folder.path(log_of(2)), 1), 0);
  EXPECT_THAT(names_in(folder), UnorderedElementsAre(log_of(1), log_of(2)));
}

std::string stat_line(int pid, const std::string& name, char state, int parent, int session, unsigned long long started) {
  std::string line = std::to_string(pid) + " (" + name + ") " + state + " " + std::to_string(parent) + " 1 " + std::to_string(session);
  for (int field = 7; field <= 21; ++field) line += field == 8 ? " -1" : " 0";
  return line + " " + std::to_string(started) + " 0 0\n";
}

TEST(Processes, AreReadFromProc) {
  const TempFolder proc;
  proc.write("12/stat", stat_line(12, "evil) S 1 (", 'Z', 7, 5, 12345678901ull));
  proc.write("13/stat", "13 (cut");
  proc.write("self/stat", stat_line(14, "x", 'S', 1, 1, 1));
  std::filesystem::create_directory(proc.path("15"));              // gone meanwhile
  std::filesystem::create_directories(proc.path("16") + "/stat");  // opened, and gone when it is read: an error of read(2), as of a folder
  const auto all = read_processes(proc.path());
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].pid, 12);
  EXPECT_EQ(all[0].parent, 7);
  EXPECT_EQ(all[0].session, 5);
  EXPECT_EQ(all[0].started, 12345678901ull);
  EXPECT_TRUE(all[0].zombie);
  EXPECT_THAT(read_processes(proc.path("missing")), IsEmpty());
}

TEST(Processes, ANameMayHoldALineEnd) {
  const TempFolder proc;
  proc.write("12/stat", "12 (a\nb) c) S 7 12 5 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 99 1 2 3\n");
  const auto all = read_processes(proc.path());
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].parent, 7);
  EXPECT_EQ(all[0].started, 99ull);
}

TEST(Processes, DescendantsAreFoundInAnyOrder) {
  const std::vector<Process> all{{.pid = 3, .parent = 9}, {.pid = 9, .parent = 2}, {.pid = 2, .parent = 1},
                                 {.pid = 5, .parent = 1}, {.pid = 4, .parent = 3}, {.pid = 6, .parent = 6}};
  std::vector<int> found;
  for (const Process& one : descendants_of(2, all)) found.push_back(one.pid);
  EXPECT_THAT(found, UnorderedElementsAre(9, 3, 4));
}

TEST(OomKills, AreCountedInTheOwnCgroup) {
  const TempFolder root;
  EXPECT_FALSE(read_oom_kills(root.path()).has_value());
  root.write("proc/vmstat", "oom_kill 9\npgfault 1\n");
  EXPECT_EQ(read_oom_kills(root.path()), 9);
  root.write("proc/self/mountinfo", "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  root.write("proc/self/cgroup", "0::/job\n");
  root.write("sys/fs/cgroup/memory.events", "oom_kill 7\n");  // of others too
  EXPECT_EQ(read_oom_kills(root.path()), 9);
  root.write("sys/fs/cgroup/job/memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 1\n");
  EXPECT_EQ(read_oom_kills(root.path()), 2);
}

TEST(OomKills, InVersion1) {
  const TempFolder root;
  root.write("proc/self/mountinfo", "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  root.write("proc/self/cgroup", "4:memory:/job\n");
  root.write("sys/fs/cgroup/memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n");
  EXPECT_EQ(read_oom_kills(root.path()), 5);
}

InstanceOutcome ended_by(int signal) {
  InstanceOutcome out;
  out.index = 3;
  out.pid = 77;
  out.signal = signal;
  out.wall_seconds = 12.34;
  out.max_rss_bytes = 500'000'000;
  return out;
}

TEST(CrashLines, TellWhereTheCoreIs) {
  CrashSurroundings around;
  EXPECT_THAT(crash_lines(ended_by(SIGSEGV), {}, around),
              ElementsAre("instance 3 was ended by SIGSEGV (Segmentation fault) after 12.3 s", HasSubstr("ulimit -c unlimited")));
  around.core_files_allowed = true;
  EXPECT_EQ(crash_lines(ended_by(SIGSEGV), {}, around).size(), 1u);
  InstanceOutcome dumped = ended_by(SIGABRT);
  dumped.core_dumped = true;
  around.core_pattern = "core.%p";
  EXPECT_THAT(crash_lines(dumped, {}, around).back(), HasSubstr("'core.%p'"));
  around.core_pattern = "|/usr/lib/systemd/systemd-coredump %P %u";
  EXPECT_THAT(crash_lines(dumped, {}, around).back(), HasSubstr("'/usr/lib/systemd/systemd-coredump': coredumpctl info 77"));
  around.core_pattern = "|/bin/handler";
  EXPECT_THAT(crash_lines(dumped, {}, around).back(), HasSubstr("'/bin/handler'"));
}

TEST(CrashLines, TellWhoSentSigkill) {
  CrashSurroundings around;
  EXPECT_THAT(crash_lines(ended_by(SIGKILL), {}, around).back(), HasSubstr("dmesg"));
  around.oom_kills = 0;
  EXPECT_THAT(crash_lines(ended_by(SIGKILL), {}, around).back(), HasSubstr("not by the kernel"));
  around.oom_kills = 1;
  around.memory_limit_bytes = 512'000'000;
  EXPECT_THAT(crash_lines(ended_by(SIGKILL), {}, around).back(),
              HasSubstr("out of memory meanwhile and ended processes (it used 500 MB, the limit is 512 MB)"));
}

TEST(CrashLines, OtherSignals) {
  EXPECT_THAT(crash_lines(ended_by(SIGSYS), {}, {}).back(), HasSubstr("seccomp"));
  EXPECT_EQ(crash_lines(ended_by(SIGUSR1), {}, {}).size(), 1u);
  EXPECT_THAT(crash_lines(ended_by(40), {"a", "b"}, {}), ElementsAre(HasSubstr("by signal 40 after"), "  | a", "  | b"));
}

TEST(LastLines, AreFewShortAndPrintable) {
  const TempFolder folder;
  EXPECT_THAT(last_lines("", 3), IsEmpty());
  EXPECT_THAT(last_lines(folder.path("missing"), 3), IsEmpty());
  EXPECT_THAT(last_lines(folder.write("empty", ""), 3), IsEmpty());
  EXPECT_THAT(last_lines(folder.write("few", "a\r\n\nb"), 3), ElementsAre("a", "", "b"));
  EXPECT_THAT(last_lines(folder.write("bar", "x\n10%\r20%\r30%\n\n \n"), 3), ElementsAre("x", "30%"));
  EXPECT_THAT(last_lines(folder.write("escape", "\x1b[31mred\x07\n"), 3), ElementsAre(" [31mred "));
  std::string many;
  for (int i = 0; i < 10'000; ++i) many += "line " + std::to_string(i) + "\n";
  EXPECT_THAT(last_lines(folder.write("many", many), 2), ElementsAre("line 9998", "line 9999"));
  EXPECT_EQ(last_lines(folder.write("long", std::string(100'000, 'x')), 2).front().size(), 203u);
}

}  // namespace
}  // namespace ipexrun::launcher
