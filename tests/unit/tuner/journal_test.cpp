// Nothing recorded is lost, whatever happens to the end of the file.
#include "tuner/study/journal.h"

#include <gmock/gmock.h>

#include <sys/syscall.h>
#include "tests/unit/tuner/fakes.h"

#include "tuner/study/history.h"

namespace {
std::vector<std::string> synced;  // what fsync(2) was asked for
}  // namespace

extern "C" int fsync(int fd) {
  std::error_code ignored;
  synced.push_back(std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), ignored).string());
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

namespace ipexrun::tuner {
namespace {

using fakes::Folder;

std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void put(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary | std::ios::trunc) << text; }

TEST(JournalLine, DetectsEveryChangedByte) {
  const std::string line = journal_line({{"kind", "end"}, {"trial", 3}, {"x", 0.1}, {"t", "a\xff\n"}});
  EXPECT_EQ(line.find('\n'), std::string::npos);
  ASSERT_TRUE(parse_journal_line(line));
  EXPECT_EQ((*parse_journal_line(line))["trial"], 3);
  for (std::size_t i = 0; i < line.size(); ++i) {
    std::string damaged = line;
    damaged[i] = damaged[i] == '7' ? '8' : '7';
    EXPECT_FALSE(parse_journal_line(damaged)) << i;
    EXPECT_FALSE(parse_journal_line(line.substr(0, i))) << i;
  }
}

TEST(Journal, IsWholeAfterATornEndAtEachByte) {
  const Folder folder;
  const std::string path = folder.path("journal.jsonl");
  {
    auto journal = Journal::open(path);
    ASSERT_TRUE(journal->append({{{"n", 1}}, {{"n", 2}}}).ok());
  }
  const std::string whole = contents(path);
  const std::size_t second = whole.find('\n') + 1;
  for (std::size_t length = second; length <= whole.size(); ++length) {
    put(path, whole.substr(0, length));
    auto journal = Journal::open(path);
    const auto before = journal->read_new();
    ASSERT_EQ(before->size(), length == whole.size() ? 2u : 1u) << length;
    ASSERT_TRUE(journal->append({{{"n", 3}}}).ok());
    const auto after = journal->read_new();
    // A line that lacks only its end becomes whole by the next append: its content was all there.
    const bool only_end_missing = length == whole.size() - 1;
    ASSERT_EQ(after->size(), only_end_missing ? 2u : 1u) << length;
    EXPECT_EQ(after->back()["n"], 3);
    EXPECT_EQ(journal->bad_lines(), length == second || length >= whole.size() - 1 ? 0 : 1) << length;
    auto again = Journal::open(path, true);
    EXPECT_EQ(again->read_new()->back()["n"], 3);
  }
}

TEST(Journal, ReadersSeeWhatOthersAppend) {
  const Folder folder;
  auto one = Journal::open(folder.path("j"));
  auto two = Journal::open(folder.path("j"));
  ASSERT_TRUE(one->append({{{"n", 1}}}).ok());
  EXPECT_EQ(two->read_new()->size(), 1u);
  EXPECT_EQ(two->read_new()->size(), 0u);
  {
    const Journal::Lock lock(*two);
    ASSERT_TRUE(two->append({{{"n", 2}}}).ok());
  }
  EXPECT_EQ(one->read_new()->size(), 2u);
}

TEST(Journal, ItsNameIsOnDiskBeforeAnythingIsWritten) {
  const Folder folder;
  synced.clear();
  ASSERT_TRUE(Journal::open(folder.path("journal.jsonl")).ok());
  EXPECT_THAT(synced, testing::ElementsAre(folder.path()));
  ASSERT_TRUE(Journal::open(folder.path("journal.jsonl"), true).ok());
  EXPECT_EQ(synced.size(), 1u);  // a report writes nothing
}

TEST(Journal, ZerosAndForeignLinesAreSkipped) {
  const Folder folder;
  put(folder.path("j"), std::string(100, '\0') + "\nnot json\n{\"r\": 3}\n\n" + journal_line({{"n", 1}}) + "\n");
  auto journal = Journal::open(folder.path("j"));
  EXPECT_EQ(journal->read_new()->size(), 1u);
  EXPECT_EQ(journal->bad_lines(), 3);
}

TEST(Journal, AFullDiskLeavesWhatWasThere) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP();
  auto journal = Journal::open("/dev/full");
  ASSERT_TRUE(journal.ok());
  const Status written = journal->append({{{"n", 1}}});
  ASSERT_FALSE(written.ok());
  EXPECT_THAT(written.error().line(), testing::HasSubstr("No space left"));
}

TEST(History, UnknownRecordsAndDoubleEndsAreNoEndOfTheStudy) {
  History history;
  tuner::apply(Record({{"kind", "of a later version"}}), &history);
  tuner::apply(Record({{"kind", "end"}, {"trial", 4}}), &history);
  tuner::apply(Record({{"kind", "start"}, {"trial", 0}, {"point", {{"a", 1}}}}), &history);
  tuner::apply(end_record(0, State::kComplete, ""), &history);
  tuner::apply(end_record(0, State::kComplete, ""), &history);
  tuner::apply(Record({{"kind", "objectives"}, {"objectives", {3}}}), &history);
  EXPECT_EQ(history.trials.size(), 1u);
  EXPECT_EQ(history.bad_records, 3);
}

TEST(History, RecordsKeepWhatTheyHold) {
  Trial trial;
  trial.number = 0;
  trial.point = {{"a", std::int64_t{2}}, {"b", 0.5}, {"c", std::string("x")}, {"d", std::monostate{}}};
  trial.budget = 9;
  trial.rung = 2;
  trial.from = 1;
  trial.outside = 7;
  tuner::Run run;
  run.state = State::kComplete;
  run.numbers = {{"v", 0.1}};
  run.folder = "trials/0000/run1";
  Objective objective = fakes::printed("v", true);
  objective.target = 3;
  objective.aggregate = Aggregate::kMean;
  History history;
  for (const Record& one : std::vector<Record>{start_record(trial), run_record(0, run), record_of({objective}),
                                               round_record(Round{"claim", 5, 1, 0, run}), end_record(0, State::kTimeout, "late")})
    tuner::apply(*parse_journal_line(journal_line(one)), &history);
  const Trial& back = history.trials.front();
  EXPECT_EQ(key_of(back.point), key_of(trial.point));
  EXPECT_EQ(back.budget, 9);
  EXPECT_EQ(back.from, 1);
  EXPECT_EQ(back.outside, 7);
  EXPECT_EQ(back.runs.front().numbers.at("v"), 0.1);
  EXPECT_EQ(back.state, State::kTimeout);
  EXPECT_EQ(history.objectives.front(), objective);
  EXPECT_EQ(history.rounds.front().series, 5);
}

}  // namespace
}  // namespace ipexrun::tuner
