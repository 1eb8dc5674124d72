#include "tuner/study/trial.h"

#include <algorithm>
#include <limits>

#include "launcher/bench/report.h"
#include "launcher/bench/stats.h"

namespace ipexrun::tuner {
namespace {

constexpr const char* kWords[] = {"running", "complete", "failed", "crashed", "out of memory", "timeout", "no value", "pruned"};

}  // namespace

std::string word_of(State state) { return kWords[static_cast<int>(state)]; }

State state_of(const std::string& word) {
  for (int i = 0; i < 8; ++i)
    if (word == kWords[i]) return static_cast<State>(i);
  return State::kFailed;
}

std::vector<double> Trial::values(const std::string& name) const {
  std::vector<double> out;
  for (const Run& run : runs) {
    const auto found = run.numbers.find(name);
    if (run.state == State::kComplete && found != run.numbers.end()) out.push_back(found->second);
  }
  return out;
}

std::optional<double> Trial::value(const std::string& name) const {
  const std::vector<double> all = values(name);
  return all.empty() ? std::nullopt : std::optional(launcher::bench::median(all));
}

double Trial::seconds() const {
  double out = 0;
  for (const Run& run : runs) out += run.seconds;
  return out;
}

const Trial* History::find(int number) const {
  return number >= 0 && number < static_cast<int>(trials.size()) ? &trials[static_cast<std::size_t>(number)] : nullptr;
}

int History::ended() const {
  return static_cast<int>(std::count_if(trials.begin(), trials.end(), [](const Trial& one) { return one.ended && one.number != 0; }));
}

bool meets(const Trial& trial, const std::vector<Constraint>& constraints, std::string* why) {
  for (const Constraint& one : constraints) {
    const auto value = trial.value(one.metric);
    if (value && one.holds(*value)) continue;
    if (why != nullptr && value) *why = one.text() + " does not hold: " + launcher::bench::show_number(*value);
    if (why != nullptr && !value) {
      const auto said =
          trial.runs.empty() ? std::map<std::string, std::string>::const_iterator() : trial.runs.front().missing.find(one.metric);
      *why = one.metric + " was not measured" + (trial.runs.empty() || said == trial.runs.front().missing.end() ? "" : ": " + said->second);
    }
    return false;
  }
  return true;
}

double excess(const Trial& trial, const std::vector<Constraint>& constraints) {
  double out = 0;
  for (const Constraint& one : constraints) {
    const auto value = trial.value(one.metric);
    out = std::max(out, value ? one.excess(*value) : std::numeric_limits<double>::infinity());
  }
  return out;
}

bool dominates(const Trial& a, const Trial& b, const std::vector<Objective>& objectives) {
  bool better = false;
  for (const Objective& one : objectives) {
    const double x = a.value(one.name).value_or(0);
    const double y = b.value(one.name).value_or(0);
    if (one.better(y, x)) return false;
    better = better || one.better(x, y);
  }
  return better;
}

std::vector<const Trial*> eligible(const History& history) {
  std::vector<const Trial*> out;
  double most = 0;
  for (const Trial& one : history.trials)
    if (one.ended && one.state == State::kComplete && one.number != 0) most = std::max(most, one.budget);
  for (const Trial& one : history.trials) {
    const bool all = std::all_of(history.objectives.begin(), history.objectives.end(),
                                 [&](const Objective& o) { return one.value(o.name).has_value(); });
    if (!one.ended || one.state != State::kComplete || history.objectives.empty() || !all) continue;
    if (one.budget < most && one.number != 0) continue;  // judged by less than the finalists were
    if (history.head && !meets(one, history.head->constraints)) continue;
    out.push_back(&one);
  }
  return out;
}

std::vector<const Trial*> ranked(const History& history, const Objective& objective) {
  std::vector<const Trial*> out = eligible(history);
  std::stable_sort(out.begin(), out.end(),
                   [&](const Trial* a, const Trial* b) { return objective.better(*a->value(objective.name), *b->value(objective.name)); });
  return out;
}

std::vector<const Trial*> pareto_front(const History& history) {
  std::vector<const Trial*> out;
  if (history.objectives.empty()) return out;
  const std::vector<const Trial*> all = ranked(history, history.objectives.front());
  for (const Trial* one : all)
    if (std::none_of(all.begin(), all.end(), [&](const Trial* other) { return dominates(*other, *one, history.objectives); }))
      out.push_back(one);
  return out;
}

const Trial* best_by_old_rule(const History& history) {
  const Trial* best = nullptr;
  for (const Trial* one : eligible(history)) {
    if (one->number == 0) continue;  // IPEX's hypertune tried no default
    const bool better = best == nullptr || std::all_of(history.objectives.begin(), history.objectives.end(), [&](const Objective& o) {
                          return o.better(*one->value(o.name), *best->value(o.name));
                        });
    if (better) best = one;
  }
  return best;
}

const Objective& chosen_objective(const History& history) {
  for (const Objective& one : history.objectives)
    if (history.head && one.name == history.head->prefer) return one;
  return history.objectives.front();
}

}  // namespace ipexrun::tuner
