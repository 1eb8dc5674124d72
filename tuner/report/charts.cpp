// Objective over trials, importance, Pareto front.
#include <optional>

#include "tuner/objective/measured.h"
#include "tuner/report/chart.h"
#include "tuner/report/result.h"

namespace ipexrun::tuner {
namespace {

constexpr int kWidth = 860;
constexpr double kLeft = 70;
constexpr double kRight = 845;

std::string title_of(const Trial& trial, const Objective& objective) {
  const auto value = trial.value(objective.name);
  return (trial.number == 0 ? "default" : "trial " + std::to_string(trial.number)) + ": " +
         (value ? show_value_of(objective, *value) : word_of(trial.state)) + "\n" + point_text(trial.point);
}

}  // namespace

std::string history_chart(const History& history, const Objective& objective) {
  constexpr double kTop = 30;
  constexpr double kBottom = 270;
  chart::Axis y{0, 1, kBottom, kTop};
  std::optional<double> low;
  std::optional<double> high;
  for (const Trial& one : history.trials) {
    const auto value = one.value(objective.name);
    if (!one.ended || !value) continue;
    low = std::min(low.value_or(*value), *value);
    high = std::max(high.value_or(*value), *value);
  }
  if (!low) return "";
  y.fit(*low, *high);
  chart::Axis x{0, std::max(1.0, static_cast<double>(history.trials.size()) - 1), kLeft + 10, kRight - 10};
  std::string out = chart::open(kWidth, 310, objective.name + " of each trial") + chart::y_axis(y, kLeft, kRight);
  out += chart::label(kLeft - 6, kTop - 14, "end", unit_of(objective));
  std::string names;
  if (const Trial* first = history.find(0); first != nullptr && first->value(objective.name)) {
    const double at = y.at(*first->value(objective.name));
    out += chart::line(kLeft, at, kRight, at, "mid");
    names = chart::label(kRight, at - 5, "end", "default", " class=\"halo\"");
  }
  std::string path;
  std::optional<double> best;
  for (const Trial& one : history.trials) {
    const auto value = one.value(objective.name);
    const double at = x.at(one.number);
    if (!one.ended) continue;
    if (!value) {
      out += fmt::format("<path class=\"cross\" d=\"M{0:.1f} {1} l8 8 m0 -8 l-8 8\"><title>{2}</title></path>\n", at - 4, kBottom - 12,
                         launcher::bench::html_escape(title_of(one, objective)));
      continue;
    }
    const bool fine = !history.head || meets(one, history.head->constraints);
    if (fine && (!best || objective.better(*value, *best))) {
      path += best ? fmt::format("H{:.1f}V{:.1f}", at, y.at(*value)) : fmt::format("M{:.1f} {:.1f}", at, y.at(*value));
      best = *value;
    }
    out += chart::dot(at, y.at(*value),
                      one.number == history.best ? "chosen"
                      : fine                     ? "dot"
                                                 : "weak",
                      title_of(one, objective), one.number == history.best ? 6 : 3.5);
  }
  if (best) out += fmt::format("<path class=\"best\" d=\"{}H{:.1f}\"/>\n", path, x.at(static_cast<double>(history.trials.size()) - 1));
  out += names + chart::label(kLeft + 10, kBottom + 24, "start", "trial 0 (the default)") +
         chart::label(kRight - 10, kBottom + 24, "end", "trial " + std::to_string(history.trials.size() - 1));
  return out + "</svg>\n";
}

std::string importance_chart(const std::vector<Importance>& rows) {
  if (rows.empty()) return "";
  constexpr double kNames = 230;
  std::string out = chart::open(kWidth, static_cast<int>(rows.size()) * 28 + 12, "share of the variance that each parameter explains");
  double top = 8;
  for (const Importance& one : rows) {
    out += chart::label(kNames - 10, top + 15, "end", one.parameter);
    out += fmt::format("<rect class=\"bar\" x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"20\"/>\n", kNames, top,
                       std::max(1.0, one.share * (kRight - kNames - 60)));
    out += chart::label(kNames + std::max(1.0, one.share * (kRight - kNames - 60)) + 8, top + 15, "start",
                        fmt::format("{:.0f}%", 100 * one.share));
    top += 28;
  }
  return out + "</svg>\n";
}

std::string pareto_chart(const History& history) {
  if (history.objectives.size() < 2) return "";
  constexpr double kTop = 30;
  constexpr double kBottom = 330;
  const Objective& a = history.objectives[0];
  const Objective& b = history.objectives[1];
  std::vector<const Trial*> all;
  for (const Trial& one : history.trials)
    if (one.ended && one.value(a.name) && one.value(b.name)) all.push_back(&one);
  if (all.empty()) return "";
  const auto bounds = [&](const Objective& o) {
    const auto [low, high] =
        std::minmax_element(all.begin(), all.end(), [&](const Trial* p, const Trial* q) { return *p->value(o.name) < *q->value(o.name); });
    return std::pair{*(*low)->value(o.name), *(*high)->value(o.name)};
  };
  chart::Axis x{0, 1, kLeft + 10, kRight - 10};
  chart::Axis y{0, 1, kBottom, kTop};
  x.fit(bounds(a).first, bounds(a).second);
  y.fit(bounds(b).first, bounds(b).second);
  std::string out = chart::open(kWidth, 390, "Pareto front of " + a.name + " and " + b.name) + chart::y_axis(y, kLeft, kRight);
  const double step = chart::nice_step(x.high - x.low, 8);
  for (double tick = std::ceil(x.low / step) * step; tick <= x.high; tick += step) {
    out += chart::line(x.at(tick), kTop, x.at(tick), kBottom, "axis") +
           chart::label(x.at(tick), kBottom + 18, "middle", launcher::bench::show_number(tick));
  }
  out += chart::label(kLeft - 60, kTop - 14, "start", b.name + (b.higher_is_better ? " (higher is better)" : " (lower is better)"));
  out += chart::label(kRight - 10, kBottom + 40, "end", a.name + (a.higher_is_better ? " (higher is better)" : " (lower is better)"));
  const std::vector<const Trial*> front = pareto_front(history);
  std::string path;
  for (const Trial* one : front)
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x.at(*one->value(a.name)), y.at(*one->value(b.name)));
  if (front.size() > 1) out += "<path class=\"best\" d=\"" + path + "\"/>\n";
  for (const Trial* one : all) {
    const bool on_front = std::find(front.begin(), front.end(), one) != front.end();
    out += chart::dot(x.at(*one->value(a.name)), y.at(*one->value(b.name)),
                      one->number == history.best ? "chosen"
                      : on_front                  ? "dot"
                                                  : "weak",
                      title_of(*one, a) + "\n" + b.name + " " + show_value_of(b, *one->value(b.name)), one->number == history.best ? 6 : 4);
  }
  return out + "</svg>\n";
}

}  // namespace ipexrun::tuner
