// Parallel coordinates: an axis a parameter, the objective last, a line a trial; the better, the stronger.
#include <map>
#include <set>

#include "tuner/report/chart.h"
#include "tuner/report/result.h"

namespace ipexrun::tuner {
namespace {

constexpr double kTop = 46;
constexpr double kBottom = 320;
constexpr double kLeft = 60;
constexpr double kLogFrom = 10;

/// Where a value stands on its axis: numbers by size, words in the order in which they came.
struct Scale {
  std::map<std::string, double> places;  ///< of words, and of few numbers
  bool numeric = false;
  bool log = false;  ///< many numbers over more than a power of ten
  chart::Axis axis{0, 1, kBottom, kTop};

  [[nodiscard]] double at(const Value& value) const {
    const auto number = number_of(value);
    if (numeric && number) return axis.at(log ? std::log(*number) : *number);
    return axis.at(places.at(text_of(value)));
  }
};

const Value& value_in(const Trial& trial, const std::string& name) {
  static const Value kNone;
  const auto found = trial.point.find(name);
  return found == trial.point.end() ? kNone : found->second;
}

Scale scale_of(const std::vector<const Trial*>& trials, const std::string& name) {
  Scale out;
  std::set<std::pair<double, std::string>> numbers;  // "1" and "1.0" are two places
  std::vector<std::string> words;
  for (const Trial* one : trials) {
    const Value& value = value_in(*one, name);
    const std::string text = text_of(value);
    if (const auto number = number_of(value)) numbers.emplace(*number, text);
    if (!number_of(value) && std::find(words.begin(), words.end(), text) == words.end()) words.push_back(text);
  }
  out.numeric = words.empty() && numbers.size() > 10;
  if (out.numeric) {
    const double least = numbers.begin()->first;
    const double most = numbers.rbegin()->first;
    out.log = least > 0 && most / least > kLogFrom;
    out.axis.fit(out.log ? std::log(least) : least, out.log ? std::log(most) : most, 0);
    return out;
  }
  double place = 0;
  for (const std::string& word : words) out.places[word] = place++;
  for (const auto& [number, text] : numbers) out.places[text] = place++;
  out.axis.low = place > 1 ? 0 : -1;
  out.axis.high = place > 1 ? place - 1 : 1;
  return out;
}

}  // namespace

std::string parallel_chart(const History& history, const Objective& objective) {
  std::vector<const Trial*> trials;
  for (const Trial& one : history.trials)
    if (one.ended && one.value(objective.name)) trials.push_back(&one);
  std::vector<std::string> names;
  for (const std::string& name : history.head ? history.head->parameters : std::vector<std::string>{})
    if (std::any_of(trials.begin(), trials.end(),
                    [&](const Trial* one) { return text_of(value_in(*one, name)) != text_of(value_in(*trials.front(), name)); }))
      names.push_back(name);
  if (trials.size() < 2 || names.empty()) return "";
  const double gap = std::max(110.0, 740.0 / static_cast<double>(names.size()));
  const int width = static_cast<int>(kLeft + gap * static_cast<double>(names.size()) + 70);
  // Weakest first, so that the best lie on top.
  std::stable_sort(trials.begin(), trials.end(),
                   [&](const Trial* a, const Trial* b) { return objective.better(*b->value(objective.name), *a->value(objective.name)); });
  chart::Axis y{0, 1, kBottom, kTop};
  const double worst = *trials.front()->value(objective.name);
  const double best = *trials.back()->value(objective.name);
  y.fit(std::min(worst, best), std::max(worst, best), 0);
  std::vector<Scale> scales;
  for (const std::string& name : names) scales.push_back(scale_of(trials, name));
  std::string out = chart::open(width, 360, "parameters and " + objective.name + " of each trial");
  for (std::size_t t = 0; t < trials.size(); ++t) {
    const Trial& trial = *trials[t];
    std::string path;
    for (std::size_t i = 0; i < names.size(); ++i)
      path +=
          fmt::format("{}{:.1f} {:.1f}", i == 0 ? "M" : "L", kLeft + gap * static_cast<double>(i), scales[i].at(value_in(trial, names[i])));
    path += fmt::format("L{:.1f} {:.1f}", kLeft + gap * static_cast<double>(names.size()), y.at(*trial.value(objective.name)));
    const double good = best == worst ? 1 : (*trial.value(objective.name) - worst) / (best - worst);
    const bool kept = !history.head || meets(trial, history.head->constraints);
    const std::string title = (trial.number == 0 ? "default" : "trial " + std::to_string(trial.number)) + ": " +
                              show_value_of(objective, *trial.value(objective.name)) + "\n" + point_text(trial.point);
    out += fmt::format("<path class=\"{}\" style=\"stroke-opacity:{:.2f}\" d=\"{}\"><title>{}</title></path>\n",
                       trial.number == history.best ? "thread chosen-line"
                       : kept                       ? "thread"
                                                    : "weak-line",
                       kept ? 0.12 + 0.75 * good * good : 0.3, path, launcher::bench::html_escape(title));
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    const double x = kLeft + gap * static_cast<double>(i);
    out += chart::line(x, kTop, x, kBottom, "stand") + chart::label(x, kTop - 26, "middle", names[i], " class=\"name\"");
    if (scales[i].numeric) {
      for (const double end : {scales[i].axis.low, scales[i].axis.high})
        out += chart::label(x + 5, scales[i].axis.at(end) + 4, "start", launcher::bench::show_number(scales[i].log ? std::exp(end) : end),
                            " class=\"halo\"");
    }
    for (const auto& [word, place] : scales[i].places)
      out += chart::label(x + 5, scales[i].axis.at(place) + 4, "start", word == "-" ? "not set" : word, " class=\"halo\"");
  }
  const double x = kLeft + gap * static_cast<double>(names.size());
  out += chart::line(x, kTop, x, kBottom, "stand") + chart::label(x, kTop - 26, "middle", objective.name, " class=\"name\"");
  for (const double end : {worst, best})
    out += chart::label(x + 5, y.at(end) + 4, "start", launcher::bench::show_number(end), " class=\"halo\"");
  return out + "</svg>\n";
}

}  // namespace ipexrun::tuner
