#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "launcher/run/child.h"
#include "launcher/run/logs.h"
#include "launcher/run/start.h"
#include "tests/unit/run/temp_folder.h"

namespace ipexrun::launcher {
namespace {

using testing::ElementsAre;

struct Pipe {
  Pipe() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
    read = Fd(ends[0]);
    write = Fd(ends[1]);
  }
  std::string all() const {
    std::string out;
    std::array<char, 4096> buffer;
    for (ssize_t n = 0; (n = ::read(read.get(), buffer.data(), buffer.size())) > 0;) out.append(buffer.data(), static_cast<std::size_t>(n));
    return out;
  }
  Fd read;
  Fd write;
};

Fd reader_of(const std::string& path) { return Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)); }

void append(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::app | std::ios::binary) << text; }

/// A log file, followed from byte `from` on.
struct Followed {
  TempFolder folder;
  std::string path;
  Pipe pipe;
  Sink sink{pipe.write.get()};
  LogFollower follower;

  Followed(const std::string& content, const std::string& prefix, int from)
      : path(folder.write("log", content)), follower(reader_of(path), from, prefix) {}
};

TEST(LogFollower, PassesCompleteLinesBehindThePrefix) {
  Followed log("old\n", "[1] ", 4);
  append(log.path, "a\nb");
  EXPECT_TRUE(log.follower.step(log.sink));
  EXPECT_EQ(log.pipe.all(), "[1] a\n");
  append(log.path, "c\n\nlast");
  EXPECT_TRUE(log.follower.step(log.sink));
  EXPECT_EQ(log.pipe.all(), "[1] bc\n[1] \n");
  log.follower.finish(log.sink);
  log.follower.finish(log.sink);
  log.sink.pump();
  EXPECT_EQ(log.pipe.all(), "[1] last\n");
}

TEST(LogFollower, ALineWithoutEndIsNotKeptForEver) {
  Followed log("", "[1] ", 0);
  append(log.path, std::string(40'000, 'x'));
  EXPECT_TRUE(log.follower.step(log.sink));
  EXPECT_EQ(log.pipe.all(), "");
  append(log.path, std::string(40'000, 'x'));
  EXPECT_TRUE(log.follower.step(log.sink));
  std::string seen;
  for (; !log.sink.empty(); log.sink.pump()) seen += log.pipe.all();
  EXPECT_EQ(seen + log.pipe.all(), "[1] " + std::string(80'000, 'x') + "\n");
}

TEST(LogFollower, GoesOnWithAFileThatWasEmptied) {
  Followed log("a long line\n", "", 0);
  EXPECT_TRUE(log.follower.step(log.sink));
  log.folder.write("log", "new\n");
  EXPECT_TRUE(log.follower.step(log.sink));
  EXPECT_EQ(log.pipe.all(), "a long line\nnew\n");
}

TEST(LogFollower, WithoutPrefixPassesBytesAsTheyCome) {
  Followed log("a\nb", "", 0);
  log.follower.step(log.sink);
  EXPECT_EQ(log.pipe.all(), "a\nb");
}

TEST(Sink, KeepsWhatADescriptorDoesNotTakeNow) {
  std::string content;
  for (int i = 0; i < 500'000; ++i) content += "line " + std::to_string(i) + "\n";
  Followed log(content, "", 0);
  while (log.follower.step(log.sink), log.sink.has_room()) {
  }
  EXPECT_FALSE(log.follower.step(log.sink));  // no room, and nothing blocked
  std::string seen;
  bool at_end = false;
  while (!at_end || !log.sink.empty()) {
    seen += log.pipe.all();
    log.sink.pump();
    at_end = log.follower.step(log.sink);
  }
  seen += log.pipe.all();
  EXPECT_TRUE(seen == content);
}

TEST(Sink, IsClosedByAReaderThatWentAway) {
  ::signal(SIGPIPE, SIG_IGN);
  Pipe pipe;
  pipe.read.reset();
  Sink sink(pipe.write.get());
  sink.put("x");
  sink.pump();
  EXPECT_TRUE(sink.closed() && sink.empty() && sink.has_room());
  sink.put("y");
  EXPECT_TRUE(sink.empty());
}

TEST(PipePump, KeepsACopyAndPassesItOn) {
  const TempFolder folder;
  Pipe input;
  const Pipe shown;
  const std::string copy = folder.path("copy");
  PipePump pump(std::move(input.read), std::make_unique<LogFile>(Fd(::open(copy.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)), copy));
  Sink sink(shown.write.get());
  ASSERT_EQ(::write(input.write.get(), "ab\n", 3), 3);
  EXPECT_TRUE(pump.step(sink));
  EXPECT_FALSE(pump.at_end());
  input.write.reset();
  EXPECT_TRUE(pump.step(sink));
  EXPECT_TRUE(pump.at_end());
  EXPECT_EQ(shown.all(), "ab\n");
  std::ifstream file(copy);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "ab\n");
}

TEST(PipePump, LosesTheCopyAndNotTheProgramWhenTheDiskIsFull) {
  const Fd full(::open("/dev/full", O_WRONLY));
  if (!full.open()) GTEST_SKIP() << "no /dev/full";
  Pipe input;
  const Pipe shown;
  PipePump pump(std::move(input.read), std::make_unique<LogFile>(Fd(::dup(full.get())), "/dev/full"));
  Sink sink(shown.write.get());
  ASSERT_EQ(::write(input.write.get(), "ab\n", 3), 3);
  pump.step(sink);
  EXPECT_EQ(shown.all(), "ab\n");
}

TEST(PipePump, ShowsWhatTheFullFileDoesNotTakeInOrder) {
  const TempFolder folder;
  const std::string path = folder.write("log", "old\n");
  const Fd full(::open("/dev/full", O_WRONLY));
  if (!full.open()) GTEST_SKIP() << "no /dev/full";
  Pipe input;
  const Pipe shown;
  PipePump pump(std::move(input.read), std::make_unique<LogFile>(Fd(::dup(full.get())), path),
                std::make_unique<LogFollower>(reader_of(path), 4, "[2] "));
  Sink sink(shown.write.get());
  append(path, "kept\n");  // in the file, but not shown yet
  ASSERT_EQ(::write(input.write.get(), "lost\nhalf", 9), 9);
  EXPECT_TRUE(pump.step(sink));
  sink.pump();
  EXPECT_EQ(shown.all(), "[2] kept\n[2] lost\n");
  EXPECT_EQ(pump.copy()->take_error(), ENOSPC);
  EXPECT_EQ(pump.copy()->take_error(), 0);
  EXPECT_EQ(pump.copy()->lost_bytes(), 9u);
  pump.finish(sink);
  sink.pump();
  EXPECT_EQ(shown.all(), "[2] half\n");
}

TEST(PipePump, TakesOnlyWhatTheEndedProgramLeftThere) {
  Pipe input;
  const Pipe shown;
  PipePump pump(std::move(input.read), nullptr);
  Sink sink(shown.write.get());
  ASSERT_EQ(::write(input.write.get(), "its last", 8), 8);
  pump.expect_end();
  ASSERT_EQ(::write(input.write.get(), " and a daemon's", 15), 15);
  EXPECT_TRUE(pump.step(sink));
  EXPECT_TRUE(pump.at_end());
  EXPECT_EQ(shown.all(), "its last");
}

TEST(Sink, CallsBeforeItWritesAndKnowsWhereALineEnds) {
  const Pipe shown;
  Sink sink(shown.write.get());
  int calls = 0;
  sink.before_write([&] { ++calls; });
  sink.pump();
  EXPECT_EQ(calls, 0);
  EXPECT_TRUE(sink.at_line_start());
  sink.put("half");
  sink.pump();
  EXPECT_EQ(calls, 1);
  EXPECT_FALSE(sink.at_line_start());
  sink.put("\n");
  sink.pump();
  EXPECT_TRUE(sink.at_line_start());
}

TEST(OpenLog, MakesFoldersAndAppends) {
  const TempFolder folder;
  EXPECT_TRUE(open_log(folder.path("a/b/log")).ok());
  folder.write("file", "");
  const auto refused = open_log(folder.path("file/log"));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, kExitFailure);
}

TEST(OpenLog, TakesAnotherNameWhereAnotherRunWrites) {
  const TempFolder folder;
  const auto first = open_log(folder.path("a.b.log"));
  const auto second = open_log(folder.path("a.b.log"));
  const auto third = open_log(folder.path("a.b.log"));
  ASSERT_TRUE(first.ok() && second.ok() && third.ok());
  EXPECT_EQ(first->path, folder.path("a.b.log"));
  EXPECT_EQ(second->path, folder.path("a.b.2.log"));
  EXPECT_EQ(third->path, folder.path("a.b.3.log"));
}

std::string bits(std::initializer_list<int> numbers, std::size_t room = 512) {
  std::array<unsigned char, 256> mask{};
  for (const int n : numbers) mask[static_cast<std::size_t>(n) / 8] |= static_cast<unsigned char>(1u << (n % 8));
  std::string out(room, '?');
  format_bits(mask.data(), mask.size(), out.data(), room);
  return out.c_str();
}

TEST(FormatBits, WritesRangesAlsoBeyond1024) {
  EXPECT_EQ(bits({}), "");
  EXPECT_EQ(bits({0}), "0");
  EXPECT_EQ(bits({0, 1, 2, 3, 8}), "0-3,8");
  EXPECT_EQ(bits({7, 8, 63, 64, 1023, 1024, 1025, 2047}), "7-8,63-64,1023-1025,2047");
}

TEST(FormatBits, CutsAtACommaWhatDoesNotFit) {
  EXPECT_EQ(bits({1, 3, 5, 100}, 6), "1,3,5");
  EXPECT_EQ(bits({1000}, 4), "");
  EXPECT_EQ(bits({100}, 4), "100");
}

TEST(EnvironmentOf, PutsThePlanOnTopOfTheCaller) {
  InstancePlan plan;
  plan.env = {{"B", "new"}, {"D", ""}};
  plan.unset_env = {"C"};
  EXPECT_THAT(environment_of(plan, {"A=1", "B=old", "C=gone", "BB=stays"}, ""), ElementsAre("A=1", "BB=stays", "B=new", "D="));
}

TEST(EnvironmentOf, CountsRestarts) {
  EXPECT_THAT(environment_of({}, {"IPEXRUN_RESTART=7"}, ""), ElementsAre());  // of an outer ipexrun
  EXPECT_THAT(environment_of({}, {}, "", 2), ElementsAre("IPEXRUN_RESTART=2"));
}

TEST(EnvironmentOf, NamesTheEventFile) {
  EXPECT_THAT(environment_of({}, {"IPEXRUN_EVENTS=/outer"}, "/run/0"), ElementsAre("IPEXRUN_EVENTS=/run/0"));
  EXPECT_THAT(environment_of({}, {"A=1"}, ""), ElementsAre("A=1"));
}

}  // namespace
}  // namespace ipexrun::launcher
