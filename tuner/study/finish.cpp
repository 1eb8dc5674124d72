// The final measurement: the leaders once more beside the default, in turn; the best of them on fresh runs; warnings.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "launcher/bench/report.h"
#include "launcher/bench/stats.h"
#include "tuner/study/study.h"

namespace ipexrun::tuner {
namespace {

using launcher::bench::median;
using launcher::bench::show_number;
using launcher::bench::show_ratio;

constexpr double kDrift = 0.05;
constexpr double kWide = 0.10;
constexpr std::size_t kPairsForClaim = 6;  // all on one side by chance: 3% of the time (two-sided)

/// "2.22x to 2.40x"
std::string interval_text(const launcher::bench::Interval& one) { return show_ratio(one.low) + " to " + show_ratio(one.high); }

}  // namespace

std::vector<double> round_values(const History& history, const std::string& phase, int series, int trial, const std::string& objective) {
  std::vector<double> out;
  for (const Round& one : history.rounds) {
    const auto found = one.run.numbers.find(objective);
    if (one.phase == phase && one.series == series && one.trial == trial && one.run.state == State::kComplete &&
        found != one.run.numbers.end())
      out.push_back(found->second);
  }
  return out;
}

std::vector<std::pair<double, double>> claim_values(const History& history, int series, int best, const Objective& objective) {
  std::vector<std::pair<double, double>> out;
  std::map<int, std::pair<std::optional<double>, std::optional<double>>> pairs;
  for (const Round& one : history.rounds) {
    const auto found = one.run.numbers.find(objective.name);
    if (one.phase != "claim" || one.series != series || one.run.state != State::kComplete || found == one.run.numbers.end()) continue;
    if (one.trial == 0) pairs[one.round].first = found->second;
    if (one.trial == best) pairs[one.round].second = found->second;
  }
  for (const auto& [round, pair] : pairs)
    if (pair.first && pair.second) out.emplace_back(*pair.first, *pair.second);
  return out;
}

std::vector<double> claim_ratios(const History& history, int series, int best, const Objective& objective) {
  std::vector<double> out;
  for (const auto& [of_default, of_best] : claim_values(history, series, best, objective)) {
    if (!(of_default > 0) || !(of_best > 0)) return {};
    out.push_back(objective.higher_is_better ? of_best / of_default : of_default / of_best);
  }
  return out;
}

int last_series(const History& history) { return history.rounds.empty() ? -1 : history.rounds.back().series; }

Result<bool> Study::round_of(const std::string& phase, int series, int round, int number) {
  for (const Round& one : history_.rounds)
    if (one.phase == phase && one.series == series && one.round == round && one.trial == number) return true;
  Round out{phase, series, round, number, {}};
  const std::string what = number == 0 ? "the default" : fmt::format("trial {}", number);
  Trial trial = *history_.find(number);
  if (settings_.budget == "placeholder" || settings_.budget == "seconds")
    for (const Trial& one : history_.trials) trial.budget = std::max(trial.budget, one.budget);
  Result<bool> ran = measure(trial, fmt::format("rounds/{}{}/{}-trial{}", phase, series, round + 1, number),
                             fmt::format("{} round {}: {}", phase == "claim" ? "final" : "leaders,", round + 1, what), &out.run, true);
  if (!ran.ok() || !*ran) return ran;
  if (Status written = write({round_record(out)}); !written.ok()) return written.error();
  return true;
}

std::vector<int> Study::leaders() const {
  std::vector<int> out;
  if (settings_.old_rule) {
    if (const Trial* best = best_by_old_rule(history_)) out.push_back(best->number);
    return out;
  }
  for (const Trial* one : ranked(history_, chosen_objective(history_))) {
    // A rung above the first is the same point once more.
    if (one->number != 0 && static_cast<int>(out.size()) < settings_.leaders) out.push_back(one->number);
  }
  return out;
}

std::string Study::problem_of(const std::string& phase, int series, int number) const {
  int failed = 0;
  int all = 0;
  std::string why;
  for (const Round& one : history_.rounds) {
    if (one.phase != phase || one.series != series || one.trial != number) continue;
    ++all;
    if (one.run.state == State::kComplete) continue;
    ++failed;
    if (why.empty()) why = one.run.why.substr(0, one.run.why.find('\n'));
  }
  if (failed > 0) return fmt::format("{} of {} fresh runs failed ({})", failed, all, why);
  for (const Constraint& one : settings_.constraints) {
    const std::vector<double> values = round_values(history_, phase, series, number, one.metric);
    if (all > 0 && values.empty()) return one.metric + " was not measured in fresh runs";
    if (all > 0 && !one.holds(median(values)))
      return fmt::format("{} did not hold in fresh runs ({})", one.text(), show_number(median(values)));
  }
  return "";
}

Result<bool> Study::rank_leaders(const std::vector<int>& leaders, int series, std::vector<int>* out) {
  *out = leaders;
  if (leaders.size() < 2 || settings_.leader_rounds == 0) return true;
  std::vector<int> order = leaders;
  if (history_.trials.front().state == State::kComplete) order.insert(order.begin(), 0);
  for (int round = 0; round < settings_.leader_rounds; ++round) {
    for (const int number : order) {
      Result<bool> ran = round_of("leaders", series, round, number);
      if (!ran.ok() || !*ran) return ran;
    }
    std::reverse(order.begin(), order.end());  // a drift of the machine falls on all alike
  }
  std::erase_if(*out, [&](int number) { return !problem_of("leaders", series, number).empty(); });
  const Objective& objective = chosen_objective(history_);
  std::stable_sort(out->begin(), out->end(), [&](int a, int b) {
    return objective.better(median(round_values(history_, "leaders", series, a, objective.name)),
                            median(round_values(history_, "leaders", series, b, objective.name)));
  });
  return true;
}

Study::Shown Study::shown_by(const std::vector<std::pair<double, double>>& pairs, const std::vector<double>& ratios,
                             const Objective& objective) {
  const std::string count = fmt::format("({} of fresh runs{})", pairs.size() == 1 ? "1 pair" : std::to_string(pairs.size()) + " pairs",
                                        pairs.size() < kPairsForClaim ? ", too few to rule out chance" : "");
  if (!ratios.empty()) {
    const auto interval = launcher::bench::bootstrap_median(ratios);
    const double middle = median(ratios);
    return {fmt::format("{}{} {}", show_ratio(middle), interval ? ", 95% interval " + interval_text(*interval) : "", count),
            (interval ? interval->low : middle) > 1};
  }
  // Values of 0 and below, such as the logarithm of a likelihood, have differences only.
  std::vector<double> of_default;
  std::vector<double> of_best;
  std::vector<double> gains;
  for (const auto& [one, other] : pairs) {
    of_default.push_back(one);
    of_best.push_back(other);
    gains.push_back(objective.higher_is_better ? other - one : one - other);
  }
  const auto interval = launcher::bench::bootstrap_median(gains);
  const double middle = median(gains);
  const std::string range =
      interval ? fmt::format(", 95% interval {} to {}", show_number(interval->low), show_number(interval->high)) : std::string();
  return {fmt::format("{} instead of {}, better by {}{} {}", show_number(median(of_best)), show_number(median(of_default)),
                      show_number(middle), range, count),
          (interval ? interval->low : middle) > 0};
}

Result<bool> Study::claim(int series, int place, int best, std::string* text, int* chosen, std::string* problem) {
  *chosen = best;
  const Trial& first = history_.trials.front();
  const Objective& objective = chosen_objective(history_);
  const std::string unit = unit_of(objective);
  if (first.state != State::kComplete) {
    *text = fmt::format("trial {} is best with {} = {}{}; the default configuration could not be measured ({})", best, objective.name,
                        show_number(*history_.find(best)->value(objective.name)), unit.empty() ? "" : " " + unit,
                        first.why.substr(0, first.why.find('\n')));
    return true;
  }
  if (settings_.claim_pairs == 0) {
    const auto of_default = first.value(objective.name);
    if (of_default && meets(first, settings_.constraints) && !objective.better(*history_.find(best)->value(objective.name), *of_default)) {
      *chosen = 0;
      *text = fmt::format("nothing was better than the default in {} in the search; best.yaml is the default", objective.name);
      return true;
    }
    *text = fmt::format("trial {} was best in the search; nothing is claimed, since no fresh pair was run (--claim-pairs 0)", best);
    return true;
  }
  for (int pair = 0; pair < settings_.claim_pairs; ++pair) {
    for (const int number : pair % 2 == 0 ? std::vector<int>{0, best} : std::vector<int>{best, 0}) {
      Result<bool> ran = round_of("claim", series, place * settings_.claim_pairs + pair, number);
      if (!ran.ok() || !*ran) return ran;
    }
  }
  *problem = problem_of("claim", series, best);
  if (!problem->empty()) return true;
  std::string of_default = problem_of("claim", series, 0);
  if (of_default.empty()) meets(first, settings_.constraints, &of_default);
  const std::vector<std::pair<double, double>> pairs = claim_values(history_, series, best, objective);
  if (pairs.empty()) {
    *text = fmt::format("trial {} in {}: {}; the default failed when it was run again ({})", best, objective.name,
                        show_number(median(round_values(history_, "claim", series, best, objective.name))), of_default);
    return true;
  }
  const auto [numbers, better] = shown_by(pairs, claim_ratios(history_, series, best, objective), objective);
  if (better) {
    *text = fmt::format("trial {} in {}, beside the default: {}", best, objective.name, numbers);
  } else if (!of_default.empty()) {
    *text = fmt::format("trial {} does what the default does not ({}); in {}, beside the default: {}", best, of_default, objective.name,
                        numbers);
  } else {
    *chosen = 0;
    *text = fmt::format(
        "nothing was shown to be better than the default in {}: the best of the search, trial {}, came to {}; best.yaml is the default",
        objective.name, best, numbers);
  }
  return true;
}

Result<Ending> Study::finish() {
  if (Status read = sync(); !read.ok()) return read.error();
  if (history_.objectives.empty()) return Error{kExitFailure, "no trial was measured", ""};
  const int series = history_.ended();
  const std::vector<int> candidates = leaders();
  std::string text;
  int best = 0;
  if (candidates.empty()) {
    std::string why;
    const bool fine = history_.trials.front().state == State::kComplete && meets(history_.trials.front(), settings_.constraints, &why);
    bool tried = false;
    for (const Trial& one : history_.trials) tried = tried || (one.number != 0 && one.state == State::kComplete);
    text = !tried ? "no trial but the default was measured"
                  : "no trial meets the constraints" + std::string(fine          ? "; the default does"
                                                                   : why.empty() ? ""
                                                                                 : " (of the default: " + why + ")");
    if (!fine) best = -1;
  } else {
    std::vector<int> order;
    Result<bool> ranked_again = rank_leaders(candidates, series, &order);
    if (!ranked_again.ok()) return ranked_again.error();
    if (!*ranked_again) return Ending{world_.stop_signal(), "stopped"};
    std::string fallen;
    for (const int number : candidates)
      if (std::find(order.begin(), order.end(), number) == order.end())
        fallen += fmt::format("{}trial {}: {}", fallen.empty() ? "" : "; ", number, problem_of("leaders", series, number));
    for (std::size_t place = 0; place < order.size() && text.empty(); ++place) {
      std::string problem;
      Result<bool> claimed = claim(series, static_cast<int>(place), order[place], &text, &best, &problem);
      if (!claimed.ok()) return claimed.error();
      if (!*claimed) return Ending{world_.stop_signal(), "stopped"};
      if (!problem.empty()) fallen += fmt::format("{}trial {}: {}", fallen.empty() ? "" : "; ", order[place], problem);
    }
    if (text.empty()) {
      const Trial& first = history_.trials.front();
      best = first.state == State::kComplete && meets(first, settings_.constraints) ? 0 : -1;
      text = "the best of the search would not do when they were run again (" + fallen + ")" +
             (best == 0 ? ": best.yaml is the default" : ", and neither does the default");
    } else if (!fallen.empty()) {
      text += " (" + fallen + ")";
    }
  }
  if (Status written = write({verdict_record(text, best)}); !written.ok()) return written.error();
  return Ending{0, text};
}

std::vector<std::string> study_warnings(const History& history) {
  std::vector<std::string> out;
  if (history.bad_records > 0)
    out.push_back(fmt::format(
        "{} of the journal could not be read: a worker was killed, or the disk was full, while writing. What it was about was run again",
        history.bad_records == 1 ? "one line" : std::to_string(history.bad_records) + " lines"));
  if (history.objectives.empty()) return out;
  const Objective& objective = chosen_objective(history);
  const int series = last_series(history);
  const Trial* first = history.find(0);
  std::vector<double> before = first == nullptr ? std::vector<double>{} : first->values(objective.name);
  std::vector<double> after;
  for (const char* phase : {"leaders", "claim"}) {
    const std::vector<double> more = round_values(history, phase, series, 0, objective.name);
    after.insert(after.end(), more.begin(), more.end());
  }
  if (!before.empty() && !after.empty() && median(before) > 0) {
    const double moved = median(after) / median(before) - 1;
    if (std::abs(moved) > kDrift)
      out.push_back(
          fmt::format("the default ran at {} before the search and at {} after it ({:+.0f}%): the machine drifted or others used it, so "
                      "values of the search are not as good as "
                      "they look; the final claim compares runs made in turn",
                      show_number(median(before)), show_number(median(after)), 100 * moved));
  }
  if (before.size() >= 2) {
    const auto [low, high] = std::minmax_element(before.begin(), before.end());
    const double middle = std::abs(median(before));  // of values about 0 there is no share
    const double spread = middle > 0 ? (*high - *low) / middle : 0;
    if (spread > kWide)
      out.push_back(
          fmt::format("runs of the default differ by {:.0f}%: smaller differences mean little. A quieter machine, longer runs or a larger "
                      "--repeats help",
                      100 * spread));
    if (before.size() >= 3 && !objective.higher_is_better && middle > 0 && before.front() > 0 &&
        before.front() > 1.2 * median(std::vector<double>(before.begin() + 1, before.end())))
      out.push_back(
          "the first run was much slower than the others: files or caches were cold. --warmup runs the program before the first trial");
  }
  int outliers = 0;
  for (const Trial& one : history.trials) outliers += launcher::bench::count_outliers(one.values(objective.name));
  if (outliers > 0)
    out.push_back(fmt::format("{} of trials {} far from the others of their trial: something else ran on the machine",
                              outliers == 1 ? "one run" : std::to_string(outliers) + " runs", outliers == 1 ? "is" : "are"));
  int lost = 0;
  for (const Trial& one : history.trials) lost += one.attempts > 1 ? 1 : 0;
  if (lost > 0)
    out.push_back(fmt::format("{} begun more than once, because a worker was killed meanwhile; no run was counted twice",
                              lost == 1 ? "one trial was" : std::to_string(lost) + " trials were"));
  if (const auto ratios = history.best > 0 ? claim_ratios(history, series, history.best, objective) : std::vector<double>{};
      ratios.size() >= 3)
    if (const auto interval = launcher::bench::bootstrap_median(ratios); interval && interval->high / interval->low > 1 + 2 * kWide)
      out.push_back("the interval of the claim is wide: more --claim-pairs or a quieter machine narrow it");
  return out;
}

}  // namespace ipexrun::tuner
