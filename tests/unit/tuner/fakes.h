// A study without processes, clocks and files other than its journal: programs are functions of the point.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "tests/unit/launcher/made_up.h"
#include "tests/unit/run/temp_folder.h"
#include "tuner/study/study.h"

namespace ipexrun::tuner::fakes {

using Folder = launcher::TempFolder;

inline Parameter category(const std::string& name, std::vector<Value> values, Target target = Target::kEnv) {
  Parameter out;
  out.name = out.key = name;
  out.target = target;
  out.values = std::move(values);
  return out;
}

inline Parameter range(const std::string& name, double low, double high, bool log = false, Kind kind = Kind::kInt) {
  Parameter out;
  out.name = out.key = name;
  out.target = Target::kEnv;
  out.kind = kind;
  out.low = low;
  out.high = high;
  out.log = log;
  return out;
}

inline std::vector<Value> numbers(int first, int last) {
  std::vector<Value> out;
  for (int i = first; i <= last; ++i) out.emplace_back(static_cast<std::int64_t>(i));
  return out;
}

inline Objective printed(const std::string& name, bool higher) {
  Objective out;
  out.name = out.key = name;
  out.higher_is_better = higher;
  return out;
}

/// What the program prints, or a report of its failure.
using Program = std::function<RunReport(const std::map<std::string, std::string>& env, int call)>;

inline RunReport prints(const std::string& name, bool higher, double value) {
  RunReport out;
  out.seconds = 1;
  out.output.texts = {std::string("hello\n@hypertune {'name': '") + name + "', 'higher_is_better': " + (higher ? "True" : "False") + "}\n" +
                      std::to_string(value) + "\n"};
  return out;
}

inline RunReport fails(State state, int code, const std::string& why) {
  RunReport out;
  out.state = state;
  out.exit_code = code;
  out.why = why;
  return out;
}

class FakeRunner final : public TrialRunner {
 public:
  explicit FakeRunner(Program program) : program_(std::move(program)) {}
  Result<RunReport> run(const RunRequest& request) override {
    requests.push_back(request);
    if (stop_at == static_cast<int>(requests.size())) {
      RunReport out;
      out.stopped = true;
      stopped = true;
      return out;
    }
    RunReport out = program_(request.words.env, static_cast<int>(requests.size()));
    now += out.seconds;
    return out;
  }
  std::vector<RunRequest> requests;
  int stop_at = -1;  ///< the run in which the user presses ctrl-C
  bool stopped = false;
  double now = 0;

 private:
  Program program_;
};

/// One worker with its journal in `folder`. Two of them on one folder are two workers.
struct Bench {
  Bench(const Folder& folder, const Space& the_space, Program program, std::function<void(Settings&)> change = {},
        const std::string& name = "worker")
      : runner(std::move(program)), space(the_space) {
    settings.program = {"./app"};
    settings.warmup = 0;
    settings.repeats = 1;
    settings.strategy = "grid";
    settings.budget = "repeats";
    settings.space = space;
    if (change) change(settings);
    const StrategySettings of_strategy{settings.seed, settings.max_trials, settings.old_rule};
    strategy = settings.strategy == "grid"     ? grid_strategy(space, of_strategy)
               : settings.strategy == "random" ? random_strategy(space, of_strategy)
               : settings.strategy == "climb"  ? climb_strategy(space, of_strategy)
                                               : halving_strategy(space, of_strategy);
    journal = std::make_unique<Journal>(Journal::open(folder.path("journal.jsonl")).value());
    World world;
    world.runner = &runner;
    world.strategy = strategy.get();
    world.plan = [this](const LaunchWords& words) { return plan(words); };
    world.now = [this] { return runner.now; };
    world.sleep = [this](double seconds) {
      runner.now += seconds;
      if (on_wait) on_wait();
    };
    world.stop_signal = [this] { return runner.stopped ? 2 : 0; };
    world.alive = [this](const std::string& worker) { return alive.count(worker) != 0; };
    world.say = [](const std::string&) {};
    world.progress = [](const History&, const std::string&) {};
    world.worker = name;
    StudyHead head;
    head.strategy = settings.strategy;
    head.constraints = settings.constraints;
    head.old_rule = settings.old_rule;
    head.prefer = settings.prefer;
    for (const Parameter& one : space.parameters) head.parameters.push_back(one.name);
    if (std::filesystem::file_size(folder.path("journal.jsonl")) == 0) {
      EXPECT_TRUE(journal->append({record_of(head)}).ok());
    }
    study = std::make_unique<Study>(settings, space, LaunchBase{settings.program, false, {}, 1}, folder.path(), *journal, world);
  }
  Bench(const Bench&) = delete;

  Settings settings;
  FakeRunner runner;
  Space space;
  std::unique_ptr<Strategy> strategy;
  std::unique_ptr<Journal> journal;
  std::unique_ptr<Study> study;
  std::map<std::string, bool> alive;
  std::function<void()> on_wait;
  std::function<Feasibility(const LaunchWords&)> plan = [](const LaunchWords& words) {
    Feasibility out;
    for (const auto& [key, value] : words.env) out.plan_key += key + "=" + value + " ";
    return out;
  };
};

inline double number(const std::map<std::string, std::string>& env, const std::string& name, double otherwise = 0) {
  const auto found = env.find(name);
  return found == env.end() ? otherwise : std::atof(found->second.c_str());
}

/// One parameter, n from 1 to 9.
inline Space ten() {
  Space space;
  space.parameters = {category("n", numbers(1, 9))};
  return space;
}

/// Better with n; the default (without n) is 2.
inline RunReport by_n(const std::map<std::string, std::string>& env, int) { return prints("rate", true, 10 * number(env, "n", 2)); }

}  // namespace ipexrun::tuner::fakes
