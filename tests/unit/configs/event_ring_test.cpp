// The event file: what one process wrote must be readable by another, whole or not at all, also after the ring wrapped, after a
// second process tried to claim it, and from many threads at once.
#include "configs/contract/event_ring.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace ipexrun {
namespace {

class EventFile : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/ipexrun-events-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
    path_ = folder_ + "/0.events";
    ASSERT_TRUE(create_event_file(path_).ok());
  }
  void TearDown() override {
    ::unlink(path_.c_str());
    ::rmdir(folder_.c_str());
  }

  static IpexrunEvent call(std::int64_t batch) {
    IpexrunEvent event{};
    event.kind = IPEXRUN_EVENT_CALL;
    event.start_ns = 10;
    event.duration_ns = 20;
    event.value[0] = batch;
    return event;
  }

  std::string folder_;
  std::string path_;
};

TEST_F(EventFile, IsPrivateAndEmptyAtFirst) {
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  const auto seen = read_events(path_);
  ASSERT_TRUE(seen.ok());
  EXPECT_TRUE(seen->events.empty());
  EXPECT_EQ(seen->header.shim_state, static_cast<unsigned>(IPEXRUN_SHIM_ABSENT));
}

TEST_F(EventFile, RefusesToOverwriteAFileThatIsThere) { EXPECT_FALSE(create_event_file(path_).ok()); }

TEST_F(EventFile, GivesBackWhatWasWritten) {
  EventWriter writer;
  ASSERT_TRUE(writer.open(path_));
  writer.write(call(32), "BertModel");
  writer.write(call(16), std::string(500, 'x'));
  const auto seen = read_events(path_);
  ASSERT_TRUE(seen.ok());
  ASSERT_EQ(seen->events.size(), 2u);
  EXPECT_STREQ(seen->events[0].text, "BertModel");
  EXPECT_EQ(seen->events[0].value[0], 32);
  EXPECT_EQ(std::string(seen->events[1].text).size(), sizeof(IpexrunEvent::text) - 1);
}

TEST_F(EventFile, AForkedChildStaysSilent) {
  EventWriter writer;
  ASSERT_TRUE(writer.open(path_));
  const pid_t child = ::fork();
  if (child == 0) {
    writer.write(call(1), "child");
    EventWriter second;
    ::_exit(second.open(path_) || writer.active() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  const auto seen = read_events(path_);
  ASSERT_TRUE(seen.ok());
  EXPECT_TRUE(seen->events.empty());
}

TEST_F(EventFile, ADeadOwnerIsReplaced) {
  const pid_t child = ::fork();
  if (child == 0) {
    EventWriter writer;
    const bool claimed = writer.open(path_);
    writer.write(call(7), "first");
    ::_exit(claimed ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(WEXITSTATUS(status), 0);
  EventWriter writer;
  ASSERT_TRUE(writer.open(path_));
  writer.write(call(8), "second");
  const auto seen = read_events(path_);
  ASSERT_TRUE(seen.ok());
  ASSERT_EQ(seen->events.size(), 2u);
  EXPECT_STREQ(seen->events[1].text, "second");
}

TEST_F(EventFile, AWrappedRingKeepsTheNewestAndCountsTheLost) {
  EventWriter writer;
  ASSERT_TRUE(writer.open(path_));
  constexpr std::uint64_t kExtra = 100;
  for (std::uint64_t i = 0; i < IPEXRUN_EVENT_CAPACITY + kExtra; ++i) writer.write(call(static_cast<std::int64_t>(i)), "");
  const auto seen = read_events(path_);
  ASSERT_TRUE(seen.ok());
  EXPECT_EQ(seen->events.size(), IPEXRUN_EVENT_CAPACITY);
  EXPECT_EQ(seen->lost, kExtra);
  EXPECT_EQ(seen->events.front().value[0], static_cast<std::int64_t>(kExtra));
  const auto tail = read_events(path_, seen->header.next - 3);
  ASSERT_TRUE(tail.ok());
  EXPECT_EQ(tail->events.size(), 3u);
  EXPECT_EQ(tail->lost, 0u);
}

TEST_F(EventFile, ThreadsDoNotMixTheirRecords) {
  EventWriter writer;
  ASSERT_TRUE(writer.open(path_));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&writer, t] {
      for (int i = 0; i < 2000; ++i) {
        IpexrunEvent event = call(t);
        event.value[1] = i;
        writer.write(event, std::to_string(t) + ":" + std::to_string(i));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  const auto seen = read_events(path_);
  ASSERT_TRUE(seen.ok());
  ASSERT_EQ(seen->events.size(), 8000u);
  std::set<std::string> names;
  for (const IpexrunEvent& event : seen->events) {
    EXPECT_EQ(std::string(event.text), std::to_string(event.value[0]) + ":" + std::to_string(event.value[1]));
    names.insert(event.text);
  }
  EXPECT_EQ(names.size(), 8000u);
}

TEST_F(EventFile, TheShimStateOnlyRises) {
  EventWriter writer;
  ASSERT_TRUE(writer.open(path_));
  writer.set_shim_state(IPEXRUN_SHIM_ACTIVE, "");
  writer.set_shim_state(IPEXRUN_SHIM_LOADED, "");
  EXPECT_EQ(read_events(path_)->header.shim_state, static_cast<unsigned>(IPEXRUN_SHIM_ACTIVE));
}

TEST_F(EventFile, ForeignFilesAreRefused) {
  const std::string other = folder_ + "/other";
  std::ofstream(other) << std::string(100000, 'z');
  EXPECT_FALSE(read_events(other).ok());
  EventWriter writer;
  EXPECT_FALSE(writer.open(other));
  EXPECT_FALSE(writer.open(folder_ + "/absent"));
  ::unlink(other.c_str());
}

}  // namespace
}  // namespace ipexrun
