// How much each parameter matters, by analysis of variance of one factor at a time: the part of the variance of the objective between
// trials that lies between the means of the parameter's values, less what as many groups would get by chance (omega squared). Interactions
// are not seen, and few trials say little; it is a picture to look at, not a proof.
#include <algorithm>
#include <map>

#include "launcher/bench/stats.h"
#include "tuner/report/result.h"

namespace ipexrun::tuner {
namespace {

constexpr std::size_t kMostLevels = 8;

/// Groups of trials by the parameter's value; many numbers are put into groups of equal size.
std::map<std::string, std::vector<double>> groups_of(const std::vector<std::pair<const Trial*, double>>& trials, const std::string& name) {
  std::map<std::string, std::vector<double>> out;
  for (const auto& [trial, value] : trials) {
    const auto found = trial->point.find(name);
    out[found == trial->point.end() ? "" : text_of(found->second)].push_back(value);
  }
  if (out.size() <= kMostLevels) return out;
  std::vector<std::pair<double, double>> numbers;
  for (const auto& [trial, value] : trials) {
    const auto found = trial->point.find(name);
    const auto number = found == trial->point.end() ? std::nullopt : number_of(found->second);
    if (!number) return out;
    numbers.emplace_back(*number, value);
  }
  std::sort(numbers.begin(), numbers.end());
  out.clear();
  for (std::size_t i = 0; i < numbers.size(); ++i) out[std::to_string(i * kMostLevels / numbers.size())].push_back(numbers[i].second);
  return out;
}

}  // namespace

std::vector<Importance> importances(const History& history, const Objective& objective) {
  std::vector<std::pair<const Trial*, double>> trials;
  std::vector<double> all;
  for (const Trial& one : history.trials) {
    const auto value = one.value(objective.name);
    if (!one.ended || one.number == 0 || !value) continue;
    trials.emplace_back(&one, *value);
    all.push_back(*value);
  }
  std::vector<Importance> out;
  if (!history.head || all.size() < 3) return out;
  const double center = launcher::bench::mean(all);
  double total = 0;
  for (const double v : all) total += (v - center) * (v - center);
  for (const std::string& name : history.head->parameters) {
    const auto groups = groups_of(trials, name);
    if (groups.size() < 2 || groups.size() >= all.size() || total <= 0) continue;
    double between = 0;
    for (const auto& [level, values] : groups) {
      const double distance = launcher::bench::mean(values) - center;
      between += static_cast<double>(values.size()) * distance * distance;
    }
    const double levels = static_cast<double>(groups.size());
    const double within = (total - between) / (static_cast<double>(all.size()) - levels);
    out.push_back({name, std::clamp((between - (levels - 1) * within) / (total + within), 0.0, 1.0), static_cast<int>(groups.size())});
  }
  std::stable_sort(out.begin(), out.end(), [](const Importance& a, const Importance& b) { return a.share > b.share; });
  return out;
}

}  // namespace ipexrun::tuner
