// Successive halving (Jamieson and Talwalkar, 2016) with a factor of three, rung by rung.
#include <algorithm>
#include <cmath>

#include "tuner/strategies/strategy.h"

namespace ipexrun::tuner {
namespace {

constexpr int kFactor = 3;

/// Trials of all rungs when the first one has n.
int total_of(int n) {
  int out = 0;
  for (; n > 1; n = (n + kFactor - 1) / kFactor) out += n;
  return out + 1;
}

class Halving final : public Strategy {
 public:
  Halving(const Space& space, const StrategySettings& settings) : space_(space), seed_(settings.seed) {
    while (total_of(first_ + 1) <= settings.max_trials) ++first_;
  }

  Result<Answer> ask(const History& history, const Judge& judge) override {
    std::vector<const Trial*> rung = of_rung(history, 0);
    if (static_cast<int>(rung.size()) < first_ && !used_up_) {
      if (auto point = new_random_point(space_, seed_, history, judge)) return Answer::point({std::move(*point)});
      used_up_ = true;
    }
    for (int k = 0;; ++k) {
      if (std::any_of(rung.begin(), rung.end(), [](const Trial* one) { return !one->ended; })) return Answer::wait();
      if (rung.size() <= 1) return Answer::done("successive halving is down to one point");
      std::vector<const Trial*> good;
      for (const Trial* one : rung)
        if (one->state == State::kComplete && !history.objectives.empty() && one->value(chosen_objective(history).name))
          good.push_back(one);
      const auto fine = [&](const Trial* one) { return !history.head || meets(*one, history.head->constraints); };
      std::stable_sort(good.begin(), good.end(), [&](const Trial* a, const Trial* b) {
        if (fine(a) != fine(b)) return fine(a);
        const Objective& objective = chosen_objective(history);
        return objective.better(*a->value(objective.name), *b->value(objective.name));
      });
      const std::size_t keep = (rung.size() + kFactor - 1) / kFactor;
      if (good.size() > keep) good.resize(keep);
      std::vector<const Trial*> next = of_rung(history, k + 1);
      for (const Trial* one : good) {
        if (std::any_of(next.begin(), next.end(), [&](const Trial* other) { return other->from == one->number; })) continue;
        return Answer::point({one->point, std::pow(kFactor, k + 1), k + 1, one->number, -1});
      }
      if (next.empty()) return Answer::done("no point of the rung before was measured");
      rung = std::move(next);
    }
  }

 private:
  static std::vector<const Trial*> of_rung(const History& history, int k) {
    std::vector<const Trial*> out;
    for (const Trial& one : history.trials)
      if (one.number != 0 && one.rung == k) out.push_back(&one);
    return out;
  }

  Space space_;
  std::uint64_t seed_;
  int first_ = 1;
  bool used_up_ = false;
};

}  // namespace

std::unique_ptr<Strategy> halving_strategy(const Space& space, const StrategySettings& settings) {
  return std::make_unique<Halving>(space, settings);
}

}  // namespace ipexrun::tuner
