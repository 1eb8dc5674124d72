#include <gmock/gmock.h>

#include "tests/unit/tuner/fakes.h"
#include "tuner/cli/progress.h"
#include "tuner/report/result.h"
#include "tuner/space/parameter_names.h"

namespace ipexrun::tuner {
namespace {

using testing::HasSubstr;

Trial trial_of(int number, Point point, std::vector<double> rates, State state = State::kComplete) {
  Trial out;
  out.number = number;
  out.point = std::move(point);
  out.ended = true;
  out.state = state;
  for (const double rate : rates) {
    tuner::Run run;
    run.state = State::kComplete;
    run.seconds = 2;
    run.numbers = {{"rate", rate}, {"latency", 1000 / rate}};
    out.runs.push_back(run);
  }
  return out;
}

History made_up() {
  History out;
  out.head = StudyHead{};
  out.head->program = {"serve.py", "a b"};
  out.head->machine = "Xeon (2 cores)";
  out.head->started = "2026-01-02 03:04:05";
  out.head->parameters = {"ninstances", "env.<A>", "x"};
  out.head->space = "ninstances: 1 2\n";
  out.objectives = {fakes::printed("rate", true)};
  out.trials = {trial_of(0, {}, {100, 102, 101})};
  int number = 1;
  for (const int n : {1, 2})
    for (const char* a : {"p", "q"})
      for (const int x : {1, 2, 3}) {
        const double rate = 100 * n + (a[0] == 'q' ? 10 : 0) + x % 2;
        out.trials.push_back(
            trial_of(number, {{"ninstances", std::int64_t{n}}, {"env.<A>", std::string(a)}, {"x", std::int64_t{x}}}, {rate, rate + 1}));
        ++number;
      }
  Trial failed = trial_of(number, {{"ninstances", std::int64_t{9}}}, {}, State::kCrashed);
  failed.why = "ended by SIGSEGV, with \"quotes\"\nmore";
  out.trials.push_back(failed);
  out.best = 10;
  out.verdict = "trial 10 in rate, beside the default: 2.08x";
  return out;
}

TEST(Record, HasALineATrialAndQuotesWhatMustBe) {
  const std::string csv = record_csv(made_up());
  EXPECT_THAT(
      csv,
      testing::StartsWith(
          "ninstances,env.<A>,x,rate,state,runs,seconds,spread_percent,constraints_met,trial,why\n,,,101,complete,3,6.000,1.0,true,0,\n"));
  EXPECT_THAT(csv, HasSubstr("\n9,,,,crashed,0,0.000,,,13,\"ended by SIGSEGV, with \"\"quotes\"\"\"\n"));
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 15);
}

TEST(Result, SaysUnitsAndWhatATableLeavesOut) {
  History history = made_up();
  EXPECT_THAT(result_text(history, "there"), HasSubstr("the best 10 of 13 measured trials; all are in record.csv\n"));
  history.trials.resize(10);
  history.best = 9;
  EXPECT_THAT(result_text(history, "there"), testing::Not(HasSubstr("record.csv")));
  history.objectives = {*parse_objective("wall")};
  history.objectives.front().name = "latency";  // which the trials have numbers of
  EXPECT_THAT(result_text(history, "there"), HasSubstr("latency (s)"));
  EXPECT_THAT(*compare_studies(history, history, "A", "B"), HasSubstr("latency (s) of the best"));
}

TEST(Importance, FindsWhatMatters) {
  const auto rows = importances(made_up(), made_up().objectives.front());
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].parameter, "ninstances");
  EXPECT_GT(rows[0].share, 0.95);
  EXPECT_LT(rows[2].share, 0.02);
}

TEST(Page, HoldsEverythingAndNothingFromOutside) {
  const std::string page = study_html(made_up());
  for (const char* part : {"rate over trials", "Parallel coordinates", "Importance for rate", "Trials, best first",
                           "Trials without a result", "env.&lt;A&gt;", "2.08x", "serve.py 'a b'"})
    EXPECT_THAT(page, HasSubstr(part));
  for (const char* part : {"http:", "https:", "<script", "src=", "url(", "env.<A>", "nan", "inf\""})
    EXPECT_THAT(page, testing::Not(HasSubstr(part))) << part;
}

TEST(Page, OfAnEmptyStudyIsAPage) {
  History empty;
  EXPECT_THAT(study_html(empty), HasSubstr("</html>"));
  empty.head = StudyHead{};
  EXPECT_THAT(study_html(empty), HasSubstr("</html>"));
  empty.objectives = {fakes::printed("rate", true)};
  EXPECT_THAT(study_html(empty), HasSubstr("</html>"));
  EXPECT_EQ(trials_table(empty, 5).lines.size(), 0u);
}

TEST(Page, ShowsTheParetoFrontOfTwoObjectives) {
  History history = made_up();
  EXPECT_EQ(pareto_chart(history), "");
  history.objectives.push_back(fakes::printed("latency", false));
  EXPECT_THAT(study_html(history), HasSubstr("Pareto front"));
  EXPECT_THAT(result_text(history, "there"), HasSubstr("Pareto front: trials 10"));
}

TEST(Text, NamesTheBestAndWhatFailed) {
  const std::string text = result_text(made_up(), "there");
  EXPECT_THAT(text, HasSubstr("13 trials in there, 1 crashed"));
  EXPECT_THAT(text, HasSubstr("default"));
  EXPECT_THAT(text, HasSubstr("2.08x"));
}

TEST(Best, IsAConfigWithItsOrigin) {
  Space space;
  space.parameters = {*name_parameter("ninstances"), *name_parameter("args.batch")};
  LaunchWords words;
  words.options = {"--ninstances=2"};
  words.env = {{"A", "b: c"}};
  words.program = {"serve.py", "--batch", "8"};
  const std::string yaml = best_yaml(made_up(), space, words);
  EXPECT_THAT(yaml, HasSubstr("ninstances: 2\n"));
  EXPECT_THAT(yaml, HasSubstr("A: \"b: c\""));
  EXPECT_THAT(yaml, HasSubstr("# ipexrun --config best.yaml serve.py --batch 8\n"));
}

TEST(Progress, SaysWhatIsBestAndHowLong) {
  Settings settings;
  settings.max_trials = 40;
  settings.claim_pairs = 0;
  settings.leader_rounds = 0;
  EXPECT_EQ(progress_text(made_up(), settings, 0), "13 of 40 trials, best rate 211.5 (trial 10, 2.09x the default), about 1 min 44 s left");
  EXPECT_EQ(trial_line(made_up(), made_up().trials[1]), "trial 1: rate 101.5 (env.<A> p, ninstances 1, x 1)");
  EXPECT_THAT(trial_line(made_up(), made_up().trials[13]), HasSubstr("trial 13: crashed, ended by SIGSEGV"));
}

TEST(Compare, NamesDifferencesAndTheRatio) {
  History other = made_up();
  other.best = 1;
  const std::string text = *compare_studies(made_up(), other, "A", "B");
  EXPECT_THAT(text, HasSubstr("rate: the best of B is 0.48x that of A"));
  History below = made_up();
  for (Trial& trial : below.trials)
    for (auto& run : trial.runs) run.numbers["rate"] = -2;
  below.rounds.clear();
  EXPECT_THAT(*compare_studies(below, below, "A", "B"), HasSubstr("rate: the best of B is better than that of A by 0"));
  EXPECT_THAT(text, HasSubstr("ninstances"));
  EXPECT_THAT(text, HasSubstr("not made in turn"));
  EXPECT_THAT(*compare_studies(made_up(), other, "A", "B", "x.md"), HasSubstr("| ninstances |"));
  EXPECT_THAT(*compare_studies(made_up(), other, "<A>", "B", "x.html"),
              testing::AllOf(HasSubstr("<!doctype html>"), HasSubstr("&lt;A&gt;")));
  EXPECT_FALSE(compare_studies(made_up(), other, "A", "B", "x.pdf").ok());
}

TEST(Progress, ATrialThatWasGivenUpSaysSo) {
  Trial trial;
  trial.number = 4;
  trial.ended = true;
  trial.state = State::kPruned;
  trial.why = "took longer than it could and still be good";
  EXPECT_THAT(trial_line(made_up(), trial), HasSubstr("trial 4: pruned, took longer"));
}

}  // namespace
}  // namespace ipexrun::tuner
