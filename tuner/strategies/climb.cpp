#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "tuner/strategies/strategy.h"

namespace ipexrun::tuner {
namespace {

constexpr std::size_t kMostValues = 12;  // of one parameter in one sweep
constexpr double kNearly = 0.25;         // broken by less, a constraint may hold with another value of a second parameter

/// The point with one parameter changed; parameters whose condition no longer holds are taken out, new ones get their default.
Point changed(const Space& space, const Point& base, const Parameter& parameter, const Value& value) {
  Point out;
  for (const Parameter& one : space.parameters) {
    if (!is_active(one, out)) continue;
    const auto found = base.find(one.name);
    if (one.name == parameter.name) {
      out[one.name] = value;
    } else if (found != base.end()) {
      out[one.name] = found->second;
    } else if (one.fallback || one.fixed() || one.target == Target::kArg) {
      out[one.name] = one.fallback ? *one.fallback : grid_values(one).front();
    }
  }
  return out;
}

/// At most kMostValues of the grid's, evenly.
std::vector<Value> values_of(const Parameter& parameter) {
  const std::vector<Value> all = grid_values(parameter);
  if (all.size() <= kMostValues) return all;
  std::vector<Value> out;
  for (std::size_t i = 0; i < kMostValues; ++i) out.push_back(all[i * (all.size() - 1) / (kMostValues - 1)]);
  return out;
}

/// A trial that breaks a constraint and is worth climbing from all the same: better than `best` and nearly within the constraints. Without
/// a best, the one that breaks them least. nullptr: none.
const Trial* just_beyond(const History& history, const Trial* best) {
  if (!history.head || history.head->constraints.empty() || history.objectives.empty()) return nullptr;
  const Objective& objective = chosen_objective(history);
  const Trial* out = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const Trial& one : history.trials) {
    const auto value = one.value(objective.name);
    if (!one.ended || one.state != State::kComplete || !value) continue;
    const double over = excess(one, history.head->constraints);
    if (best == nullptr) {
      if (over < least) out = &one;
      least = std::min(least, over);
    } else if (over > 0 && over < kNearly && objective.better(*value, *best->value(objective.name)) &&
               (out == nullptr || objective.better(*value, *out->value(objective.name)))) {
      out = &one;
    }
  }
  return out;
}

class Climb final : public Strategy {
 public:
  Climb(const Space& space, const StrategySettings& settings) : space_(space), seed_(settings.seed) {}

  Result<Answer> ask(const History& history, const Judge& judge) override {
    std::set<std::string> tried;
    for (const Trial& one : history.trials) tried.insert(key_of(one.point));
    const std::vector<const Trial*> good =
        history.objectives.empty() ? std::vector<const Trial*>{} : ranked(history, chosen_objective(history));
    const Trial* best = good.empty() ? nullptr : good.front();
    // The parameter that was swept least comes first; a sweep once begun is finished.
    std::vector<std::size_t> order;
    const std::vector<double> sweeps = swept(history);
    for (std::size_t i = 0; i < space_.parameters.size(); ++i) order.push_back(i);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return sweeps[a] < sweeps[b]; });
    // Every second round goes out from beyond the constraints: the best of what keeps them may be a place that no single change leads on
    // from.
    std::vector<const Trial*> bases = {best};
    if (const Trial* beyond = just_beyond(history, best))
      bases.insert(best == nullptr || rounds(sweeps) % 2 == 1 ? bases.begin() : bases.end(), beyond);
    for (const Trial* base : bases) {
      if (auto out = next_from(base, order, tried, judge)) return Answer::point(std::move(*out));
    }
    const bool busy = std::any_of(history.trials.begin(), history.trials.end(), [](const Trial& one) { return !one.ended; });
    if (busy) return Answer::wait();  // its end may give a better base
    auto point = new_random_point(space_, seed_, history, judge);
    return point ? Answer::point({std::move(*point)}) : Answer::done("no further point was found that was not tried");
  }

 private:
  /// The first point that differs from the base (nullptr: the default) in one parameter, in this order of parameters, and was not tried.
  std::optional<Proposal> next_from(const Trial* base, const std::vector<std::size_t>& order, const std::set<std::string>& tried,
                                    const Judge& judge) const {
    for (const std::size_t i : order) {
      const Parameter& parameter = space_.parameters[i];
      if (parameter.fixed()) continue;
      for (const Value& value : values_of(parameter)) {
        Point point = changed(space_, base == nullptr ? default_point(space_) : base->point, parameter, value);
        if (point.count(parameter.name) == 0 || tried.count(key_of(point)) != 0 || judge(point).use != Use::kYes) continue;
        Proposal out{std::move(point)};
        out.from = base == nullptr ? 0 : base->number;
        return out;
      }
    }
    return std::nullopt;
  }

  /// Sweeps that every parameter has had.
  [[nodiscard]] int rounds(const std::vector<double>& sweeps) const {
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < sweeps.size(); ++i)
      if (!space_.parameters[i].fixed() && space_.parameters[i].when.empty()) least = std::min(least, sweeps[i]);
    return std::isfinite(least) ? static_cast<int>(least) : 0;
  }

  /// How often each parameter was gone through, in whole sweeps.
  [[nodiscard]] std::vector<double> swept(const History& history) const {
    std::vector<double> out(space_.parameters.size(), 0);
    for (const Trial& one : history.trials) {
      const Trial* from = history.find(one.from);
      if (from == nullptr) continue;
      for (std::size_t i = 0; i < out.size(); ++i) {
        const std::string& name = space_.parameters[i].name;
        const auto a = one.point.find(name);
        const auto b = from->point.find(name);
        const bool same =
            (a == one.point.end()) == (b == from->point.end()) && (a == one.point.end() || text_of(a->second) == text_of(b->second));
        if (!same) {
          out[i] += 1;
          break;
        }
      }
    }
    for (std::size_t i = 0; i < out.size(); ++i) {
      const double sweep = static_cast<double>(std::max<std::size_t>(1, values_of(space_.parameters[i]).size() - 1));
      out[i] = static_cast<double>(static_cast<int>(out[i] / sweep));
    }
    return out;
  }

  Space space_;
  std::uint64_t seed_;
};

}  // namespace

std::unique_ptr<Strategy> climb_strategy(const Space& space, const StrategySettings& settings) {
  return std::make_unique<Climb>(space, settings);
}

}  // namespace ipexrun::tuner
