// From a point to a launch: the options of ipexrun, the program's arguments, and whether the planner accepts them.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "configs/base/result.h"
#include "launcher/options.h"
#include "launcher/plan/machine.h"
#include "launcher/plan/planner.h"
#include "launcher/run/context.h"
#include "tuner/space/space.h"

namespace ipexrun::tuner {

/// What all trials of a worker have in common.
struct LaunchBase {
  std::vector<std::string> program;  ///< PROGRAM and arguments with placeholders, "-m" in front of a module
  bool no_python = false;
  std::vector<int> cpus;  ///< this worker's slice; empty = all
  double budget = 1;      ///< for {budget}
};

/// Long options in order, as "--name=value", without PROGRAM.
struct LaunchWords {
  std::vector<std::string> options;
  std::map<std::string, std::string> env;
  std::vector<std::string> program;  ///< placeholders filled in
};
LaunchWords words_of(const Space& space, const Point& point, const LaunchBase& base);

/// The words as ipexrun would parse them. kExitUsage: they contradict each other.
Result<launcher::Options> options_of(const LaunchWords& words);

/// What the planner makes of them.
struct Feasibility {
  std::string why;       ///< "" = it can be launched
  int code = 0;          ///< with `why`: the exit code that ipexrun would have
  std::string plan_key;  ///< equal for launches that do not differ
  int instances = 1;
};

/// Plans launches; what is looked up (program, libraries) is kept, so that hundreds of points cost little.
class LaunchPlanner {
 public:
  using LookUp = std::function<Result<launcher::PlanContext>(const launcher::Options&, const launcher::Machine&)>;
  /// `look_up`: launcher::make_context, or what a test makes up.
  explicit LaunchPlanner(launcher::Machine machine, LookUp look_up = launcher::make_context)
      : machine_(std::move(machine)), look_up_(std::move(look_up)) {}
  Feasibility check(const LaunchWords& words);

 private:
  launcher::Machine machine_;
  LookUp look_up_;
  std::map<std::string, Result<launcher::PlanContext>> contexts_;
};

/// A text for equal plans.
std::string plan_key(const LaunchPlan& plan);

/// The CPUs of worker `index` of `jobs`: whole cores, nearly equal numbers; with one job all that this process may use.
std::vector<int> slice_of(const launcher::Machine& machine, int jobs, int index);

}  // namespace ipexrun::tuner
