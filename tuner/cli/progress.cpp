#include "tuner/cli/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "launcher/bench/report.h"
#include "launcher/run/progress.h"
#include "tuner/report/result.h"

namespace ipexrun::tuner {

std::string progress_text(const History& history, const Settings& settings, double elapsed_s) {
  const int done = history.ended();
  double most = settings.max_trials;
  if (history.head && history.head->strategy == "grid" && history.head->grid > 0) {
    double refused = 0;
    for (const auto& [why, count] : history.dropped) refused += count;
    most = std::min(most, std::max<double>(done, history.head->grid - refused));
  }
  std::string out = fmt::format("{} of {:.0f} trials", done, most);
  if (!history.objectives.empty()) {
    const Objective& objective = chosen_objective(history);
    const auto best = ranked(history, objective);
    const Trial* first = history.find(0);
    const double of_first = first == nullptr ? 0 : first->value(objective.name).value_or(0);
    if (!best.empty()) {
      const double value = *best.front()->value(objective.name);
      out += fmt::format(", best {} {}", objective.name, show_value_of(objective, value));
      if (best.front()->number == 0) {
        out += " (default)";
      } else {
        out += of_first > 0 && value > 0
                   ? fmt::format(" (trial {}, {} the default)", best.front()->number,
                                 launcher::bench::show_ratio(objective.higher_is_better ? value / of_first : of_first / value))
                   : fmt::format(" (trial {})", best.front()->number);
      }
    }
  }
  double seconds = 0;
  int ended = 0;
  double of_run = 0;
  for (const Trial& one : history.trials) {
    if (!one.ended) continue;
    seconds += one.seconds();
    ++ended;
    of_run = one.runs.empty() ? of_run : one.runs.front().seconds;
  }
  if (ended > 0 && history.stop.empty()) {
    const double finals = settings.worker ? 0 : of_run * ((1 + settings.leaders) * settings.leader_rounds + 2 * settings.claim_pairs);
    double left = seconds / ended * std::max(0.0, most - done) / std::max(1, settings.jobs);
    if (settings.max_time_s > 0) left = std::min(left, std::max(0.0, settings.max_time_s - elapsed_s));
    out += ", about " + duration_text(left + finals) + " left";
  }
  return out;
}

std::string trial_line(const History& history, const Trial& trial) {
  std::string out = trial.number == 0 ? "the default" : fmt::format("trial {}", trial.number);
  if (measured(trial.state)) {
    std::string values;
    for (const Objective& one : history.objectives)
      if (const auto value = trial.value(one.name)) values += (values.empty() ? ": " : ", ") + one.name + " " + show_value_of(one, *value);
    out += values.empty() ? ": " + word_of(trial.state) + ", " + trial.why.substr(0, trial.why.find('\n')) : values;
  } else {
    out += ": " + word_of(trial.state) + ", " + trial.why.substr(0, trial.why.find('\n'));
  }
  return out + " (" + point_text(trial.point) + ")";
}

Progress::Progress(const Settings& settings) : settings_(settings), terminal_(!settings.quiet && launcher::progress_terminal() >= 0) {}

Progress::~Progress() { hide(); }

void Progress::hide() {
  if (drawn_) std::fputs("\r\033[K", stderr);
  drawn_ = false;
}

void Progress::show(const History& history, const std::string& doing, double elapsed_s) {
  if (settings_.quiet) return;
  for (; told_ < history.trials.size() && history.trials[told_].ended; ++told_) {
    hide();
    std::fputs(("ipexrun: " + trial_line(history, history.trials[told_]) + "\n").c_str(), stderr);
  }
  if (!terminal_) return;
  winsize size{};
  const std::size_t columns = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 80;
  std::string text = "ipexrun: " + progress_text(history, settings_, elapsed_s) + " | " + doing;
  if (text.size() >= columns) text.resize(columns - 1);
  std::fputs(("\r\033[K" + text).c_str(), stderr);
  drawn_ = true;
}

}  // namespace ipexrun::tuner
