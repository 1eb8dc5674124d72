#include "tuner/study/study.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "launcher/bench/report.h"
#include "launcher/bench/stats.h"
#include "launcher/cli/option_table.h"

namespace ipexrun::tuner {
namespace {

constexpr double kFirstLimit = 3600;  // s, of a run before anything is known
constexpr double kLimitFactor = 5;
constexpr double kLimitAtLeast = 30;  // s
constexpr double kHopelessAt = 0.10;  // worse than the best by so much, and by more than the noise
constexpr double kNoiseAtLeast = 0.03;
constexpr double kGiveUpFactor = 1.5;  // a wall time above this multiple of the best is not waited for
constexpr int kFailuresToStop = 3;
constexpr int kMostAttempts = 10;  // of a trial whose workers are killed; an end that the user asked for does not count
constexpr double kPollSeconds = 0.2;

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

Study::Study(const Settings& settings, const Space& space, LaunchBase base, const std::string& folder, Journal& journal, World world)
    : settings_(settings),
      space_(space),
      base_(std::move(base)),
      folder_(folder),
      journal_(journal),
      world_(std::move(world)),
      began_(world_.now()) {}

Status Study::sync() {
  const Journal::Lock lock(journal_);  // unlocked one might read what a full disk takes back
  return take_over();
}

Status Study::take_over() {
  const int bad_before = journal_.bad_lines();
  Result<std::vector<Record>> records = journal_.read_new();
  if (!records.ok()) return records.error();
  for (const Record& one : *records) apply(one, &history_);
  history_.bad_records += journal_.bad_lines() - bad_before;
  for (; planned_ < history_.trials.size(); ++planned_) {
    const Trial& trial = history_.trials[planned_];
    if (trial.rung > 0) continue;
    LaunchBase base = base_;
    const Feasibility plan = world_.plan(words_of(space_, trial.point, base));
    plans_[key_of(trial.point)] = plan;
    if (plan.why.empty() && !plan.plan_key.empty()) trial_of_plan_.emplace(plan.plan_key, trial.number);
  }
  return ok_status();
}

Status Study::write(const std::vector<Record>& records) {
  const Journal::Lock lock(journal_);
  if (Status written = journal_.append(records); !written.ok()) return written;
  return take_over();
}

Judgement Study::judge(const Point& point) {
  const std::string key = key_of(point);
  auto known = plans_.find(key);
  // A space of which hardly anything can be launched is looked at for long: nobody waits for that after ctrl-C.
  if (known == plans_.end() && world_.stop_signal() != 0) return {Use::kInfeasible, "stopped", -1};
  if (known == plans_.end()) {
    known = plans_.emplace(key, world_.plan(words_of(space_, point, base_))).first;
    if (!known->second.why.empty()) ++dropped_[first_line(known->second.why)];
  }
  if (!known->second.why.empty()) return {Use::kInfeasible, known->second.why, -1};
  const auto same = trial_of_plan_.find(known->second.plan_key);
  if (known->second.plan_key.empty() || same == trial_of_plan_.end()) return {};
  return {Use::kSame, "", same->second};
}

Status Study::write_dropped() {
  if (dropped_.empty()) return ok_status();
  const Record record = dropped_record(dropped_);
  dropped_.clear();
  return write({record});
}

std::string Study::reason_to_stop() const {
  int started = 0;
  int failed = 0;
  bool good = false;
  for (const Trial& one : history_.trials) {
    started += one.number != 0 && one.rung >= 0 ? 1 : 0;
    if (!one.ended) continue;
    if (measured(one.state)) {
      good = true;
    } else {
      ++failed;
    }
  }
  if (!good && failed >= kFailuresToStop) return "failed";
  const bool over = settings_.max_time_s > 0 && world_.now() - began_ >= settings_.max_time_s;
  const bool none_open = std::all_of(history_.trials.begin(), history_.trials.end(), [](const Trial& one) { return one.ended; });
  if (settings_.old_rule && !history_.objectives.empty()) {
    const Trial* best = best_by_old_rule(history_);
    const bool met = best != nullptr && std::all_of(history_.objectives.begin(), history_.objectives.end(),
                                                    [&](const Objective& o) { return o.meets_target(*best->value(o.name)); });
    if (met) return "all targets are met";
  }
  if (over) return "the time for the search is over";
  return started >= settings_.max_trials && none_open ? fmt::format("{} trials were made", settings_.max_trials) : "";
}

Result<Study::Next> Study::begin(Trial trial) {
  trial.worker = world_.worker;
  if (Status written = journal_.append({start_record(trial)}); !written.ok()) return written.error();
  if (Status read = take_over(); !read.ok()) return read.error();
  return Next{Next::What::kTrial, trial.number, ""};
}

/// What this worker does next; what it takes is written down before others can look.
Result<Study::Next> Study::next() {
  const Journal::Lock lock(journal_);
  if (Status read = take_over(); !read.ok()) return read.error();
  bool others = false;
  for (const Trial& one : history_.trials) {
    if (one.ended) continue;
    if (one.worker != world_.worker && world_.alive(one.worker)) {
      others = true;
      continue;
    }
    if (one.attempts >= kMostAttempts) {  // a trial that takes its worker along must not do so for ever
      if (Status written = journal_.append({end_record(one.number, State::kFailed, "its worker was killed each time it was run")});
          !written.ok())
        return written.error();
      return Next{Next::What::kWait, 0, ""};
    }
    return begin(one);
  }
  if (history_.trials.empty()) {
    Trial first;
    first.point = default_point(space_);
    return begin(first);
  }
  if (history_.objectives.empty() && !history_.trials.front().ended) return Next{Next::What::kWait, 0, ""};
  if (const std::string why = reason_to_stop(); !why.empty()) return Next{Next::What::kDone, 0, why};
  if (static_cast<int>(history_.trials.size()) - 1 >= settings_.max_trials)
    return Next{others ? Next::What::kWait : Next::What::kDone, 0, fmt::format("{} trials were made", settings_.max_trials)};
  Result<Answer> answer = world_.strategy->ask(history_, [this](const Point& point) { return judge(point); });
  if (!answer.ok()) return answer.error();
  if (answer->what == Answer::What::kWait || (answer->what == Answer::What::kDone && others)) return Next{Next::What::kWait, 0, ""};
  if (answer->what == Answer::What::kDone) return Next{Next::What::kDone, 0, answer->why};
  Trial trial;
  trial.number = static_cast<int>(history_.trials.size());
  trial.point = std::move(answer->proposal.point);
  trial.budget = answer->proposal.budget;
  trial.rung = answer->proposal.rung;
  trial.from = answer->proposal.from;
  trial.outside = answer->proposal.outside;
  return begin(trial);
}

Result<Ending> Study::search() {
  if (Status read = sync(); !read.ok()) return read.error();
  const Feasibility first = world_.plan(words_of(space_, default_point(space_), base_));
  if (!first.why.empty()) return Error{first.code, "the default configuration cannot be launched: " + first.why, ""};
  for (;;) {
    if (const int signal = world_.stop_signal(); signal != 0) return Ending{signal, "stopped"};
    if (const Trial* zero = history_.find(0); zero != nullptr && zero->ended && zero->state == State::kNoValue)
      return Error{kExitFailure, zero->why, "once the program or the command is mended, --fresh begins anew"};
    Result<Next> step = next();
    if (!step.ok()) return step.error();
    if (const int signal = world_.stop_signal(); signal != 0 && step->what != Next::What::kTrial) return Ending{signal, "stopped"};
    if (step->what == Next::What::kDone) {
      if (Status written = write_dropped(); !written.ok()) return written.error();
      if (step->why != "failed") {
        if (history_.stop != step->why)
          if (Status written = write({stop_record(step->why)}); !written.ok()) return written.error();
        return Ending{0, step->why};
      }
      std::string said;
      for (const Trial& one : history_.trials)
        if (one.ended && !one.why.empty() && said.empty()) said = one.why;
      const std::string why = first_line(said);
      return Error{kExitFailure,
                   "the program failed in each of the first trials: " + why +
                       " (ipexrun runs it the same way, without hypertune; once it works, --fresh begins anew)" + said.substr(why.size()),
                   ""};
    }
    if (step->what == Next::What::kWait) {
      world_.progress(history_, "waiting for other workers");
      world_.sleep(kPollSeconds);
      continue;
    }
    Result<bool> ran = run_trial(step->trial);
    if (!ran.ok()) return ran.error();
    if (!*ran) {
      if (Status left = write({Record{{"kind", "left"}, {"trial", step->trial}}}); !left.ok()) return left.error();
      return Ending{world_.stop_signal(), "stopped"};
    }
    const Trial& trial = history_.trials[static_cast<std::size_t>(step->trial)];
    if (trial.number == 0 && !trial.runs.empty())
      for (const auto& [metric, why] : trial.runs.front().missing)
        world_.say("the default has no " + metric + ": " + why + ". A trial without it counts as one that does not meet the constraint");
    if (trial.number != 0)
      if (Status told = world_.strategy->tell(history_, trial); !told.ok()) return told.error();
  }
}

double Study::time_limit(int instances) const {
  if (settings_.trial_timeout_s > 0) return settings_.trial_timeout_s;
  double longest = 0;
  if (!history_.trials.empty())
    for (const Run& run : history_.trials.front().runs)
      if (run.state == State::kComplete) longest = std::max(longest, run.seconds);
  if (longest == 0) return kFirstLimit;
  const auto first = plans_.find(key_of(history_.trials.front().point));
  const int of_first = first == plans_.end() ? 1 : std::max(1, first->second.instances);
  return std::ceil(kLimitAtLeast + kLimitFactor * longest * std::max(1, instances) / of_first);
}

RunRequest Study::request_for(const Trial& trial, const std::string& place, bool fresh) {
  RunRequest out;
  LaunchBase base = base_;
  const std::string& budget = settings_.budget;
  if (budget == "placeholder") base.budget = trial.budget;
  if (budget == "seconds") out.bench_seconds = trial.budget;
  out.words = words_of(space_, trial.point, base);
  out.folder = folder_ + "/" + place;
  const auto plan = plans_.find(key_of(trial.point));
  out.timeout_s = time_limit(plan == plans_.end() ? 1 : plan->second.instances);
  const bool needs_bench = history_.objectives.empty() ? !settings_.old_rule
                                                       : std::any_of(history_.objectives.begin(), history_.objectives.end(),
                                                                     [](const Objective& o) { return o.source == Source::kBench; });
  bool constrained = false;
  for (const Constraint& one : settings_.constraints)
    constrained = constrained || std::none_of(history_.objectives.begin(), history_.objectives.end(),
                                              [&](const Objective& o) { return o.name == one.metric; });
  out.bench = needs_bench || constrained || out.bench_seconds > 0;
  // Of fresh runs none is given up: the default's are not either, and one slow run would rule out the best.
  if (!fresh && history_.objectives.size() == 1 && history_.objectives.front().key == "wall_s" && trial.number != 0) {
    const auto best = ranked(history_, history_.objectives.front());
    if (!best.empty()) out.give_up_after_s = kGiveUpFactor * *best.front()->value(history_.objectives.front().name) + 1;
  }
  return out;
}

Status Study::settle_objectives(const RunOutput& output) {
  if (!history_.objectives.empty()) return ok_status();
  Result<std::vector<Objective>> settled = resolve_objectives(settings_.objectives, settings_.has_objectives, output);
  if (!settled.ok()) return settled.error();
  if (!settings_.prefer.empty() &&
      std::none_of(settled->begin(), settled->end(), [&](const Objective& o) { return o.name == settings_.prefer; }))
    return Error{kExitUsage, "--prefer " + settings_.prefer + " names no objective", "there are: " + objective_names(*settled)};
  return write({record_of(*settled)});
}

Status Study::check_constraints(const RunOutput& output, bool first, Run* out) const {
  const std::vector<std::string> fields = bench_fields();
  for (const Constraint& one : settings_.constraints) {
    if (out->numbers.count(one.metric) != 0) continue;
    const auto why = output.missing.find(one.metric);
    if (why != output.missing.end() || std::find(fields.begin(), fields.end(), one.metric) != fields.end()) {
      out->missing[one.metric] = why != output.missing.end() ? why->second : "the run left no report of --bench";
    } else if (first) {
      std::vector<std::string> known = fields;
      for (const auto& [name, value] : out->numbers) known.push_back(name);
      std::string near = launcher::nearest_word(one.metric, known);
      for (const std::string& name : known)
        if (near.empty() && name.starts_with(one.metric)) near = name;
      return Error{kExitFailure, "nothing that was measured is called '" + one.metric + "', which the constraint " + one.text() + " needs",
                   near.empty() ? "docs/bench.md lists what --bench measures" : "did you mean " + near + "?"};
    }
  }
  return ok_status();
}

/// One start of the program. false: the user ended it, and it does not count.
Result<bool> Study::measure(const Trial& trial, const std::string& place, const std::string& doing, Run* out, bool fresh) {
  world_.progress(history_, doing);
  const RunRequest request = request_for(trial, place, fresh);
  Result<RunReport> report = world_.runner->run(request);
  if (!report.ok()) return report.error();
  if (report->stopped) return false;
  out->state = report->state;
  out->exit_code = report->exit_code;
  out->seconds = report->seconds;
  out->why = report->why;
  out->folder = place;
  out->numbers = all_numbers(report->output);
  out->numbers["seconds"] = report->seconds;
  if (out->state != State::kComplete) return true;
  if (Status settled = settle_objectives(report->output); !settled.ok()) {
    out->state = State::kNoValue;
    out->why = settled.error().line();
    return true;
  }
  for (const Objective& one : history_.objectives) {
    const Result<double> value = value_of(one, report->output);
    if (value.ok() && std::isfinite(*value)) {
      out->numbers[one.name] = *value;
    } else if (value.ok()) {
      out->state = State::kFailed;
      out->why = fmt::format("{} was {}, which is neither better nor worse than a number", one.name, *value);
    } else {
      out->state = State::kNoValue;
      out->why = value.error().line();
    }
  }
  if (Status known = check_constraints(report->output, trial.number == 0 && trial.runs.empty(), out); !known.ok()) {
    out->state = State::kNoValue;
    out->why = known.error().line();
  }
  return true;
}

Result<bool> Study::warm_up() {
  const Trial& first = history_.trials.front();
  for (int i = 0; i < settings_.warmup; ++i) {
    world_.progress(history_, fmt::format("warm-up {} of {}", i + 1, settings_.warmup));
    RunRequest request = request_for(first, fmt::format("trials/0000/warmup{}", i + 1));
    Result<RunReport> report = world_.runner->run(request);
    if (!report.ok()) return report.error();
    if (report->stopped) return false;
    if (report->state != State::kComplete) break;  // the trial itself will say why
  }
  warm_ = true;
  return true;
}

bool Study::hopeless(const Trial& trial, std::string* why) const {
  if (trial.number == 0 || history_.objectives.size() != 1 || settings_.budget == "placeholder") return false;
  const Objective& objective = history_.objectives.front();
  const std::vector<const Trial*> best = ranked(history_, objective);
  const auto value = trial.value(objective.name);
  if (best.empty() || !value || !(*value > 0)) return false;
  const double of_best = *best.front()->value(objective.name);
  double noise = kNoiseAtLeast;
  for (const Trial* one : {&history_.trials.front(), best.front()}) {
    std::vector<double> values = one->values(objective.name);
    if (values.size() < 2) continue;
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    noise = std::max(noise, (*high - *low) / std::max(1e-300, std::abs(launcher::bench::median(values))));
  }
  const double ratio = objective.higher_is_better ? of_best / *value : *value / of_best;
  if (ratio <= 1 + std::max(kHopelessAt, 2 * noise)) return false;
  *why = fmt::format("not repeated: the best is {} as good", launcher::bench::show_ratio(ratio));
  return true;
}

Status Study::end_trial(int number, State state, const std::string& why) {
  std::vector<Record> records;
  if (!dropped_.empty()) records.push_back(dropped_record(dropped_));
  dropped_.clear();
  records.push_back(end_record(number, state, why));
  return write(records);
}

Result<bool> Study::run_trial(int number) {
  if (number == 0 && history_.trials.front().runs.empty() && !warm_) {
    Result<bool> warmed = warm_up();
    if (!warmed.ok() || !*warmed) return warmed;
  }
  const auto trial = [&]() -> const Trial& { return history_.trials[static_cast<std::size_t>(number)]; };
  int repeats = settings_.repeats;
  if (history_.head && history_.head->strategy == "halving" && number != 0 && settings_.budget == "repeats")
    repeats = static_cast<int>(trial().budget);
  std::string why;
  while (static_cast<int>(trial().runs.size()) < repeats) {
    const int i = static_cast<int>(trial().runs.size()) + 1;
    if (i > 1 && settings_.budget != "repeats" && hopeless(trial(), &why)) break;
    if (i > 1 && settings_.budget == "repeats" && history_.head && history_.head->strategy != "halving" && hopeless(trial(), &why)) break;
    Run run;
    const std::string what = number == 0 ? "the default" : fmt::format("trial {}", number);
    Result<bool> ran =
        measure(trial(), fmt::format("trials/{:04}/run{}", number, i), fmt::format("{}, run {} of {}", what, i, repeats), &run);
    if (!ran.ok() || !*ran) return ran;
    if (Status written = write({run_record(number, run)}); !written.ok()) return written.error();
    if (run.state == State::kComplete) continue;
    // A trial that was measured once keeps that; one whose first run failed is a failure.
    const bool some = !history_.objectives.empty() && trial().value(history_.objectives.front().name).has_value();
    if (Status ended = end_trial(number, run.state, some ? run.why + " (in run " + std::to_string(i) + ")" : run.why); !ended.ok())
      return ended.error();
    return true;
  }
  if (Status ended = end_trial(number, State::kComplete, why); !ended.ok()) return ended.error();
  return true;
}

}  // namespace ipexrun::tuner
