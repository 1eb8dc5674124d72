#include <set>

#include "tuner/strategies/strategy.h"

namespace ipexrun::tuner {
namespace {

constexpr int kMostDraws = 5000;
constexpr std::uint64_t kMostScanned = 20000;

class RandomSearch final : public Strategy {
 public:
  RandomSearch(const Space& space, const StrategySettings& settings) : space_(space), seed_(settings.seed) {}

  Result<Answer> ask(const History& history, const Judge& judge) override {
    auto point = new_random_point(space_, seed_, history, judge);
    return point ? Answer::point({std::move(*point)}) : Answer::done("no further point was found that was not tried");
  }

 private:
  Space space_;
  std::uint64_t seed_;
};

}  // namespace

std::optional<Point> new_random_point(const Space& space, std::uint64_t seed, const History& history, const Judge& judge) {
  std::set<std::string> tried;
  for (const Trial& one : history.trials) tried.insert(key_of(one.point));
  Random random(seed);
  for (int i = 0; i < kMostDraws; ++i) {
    Point point = random_point(space, random);
    if (tried.insert(key_of(point)).second && judge(point).use == Use::kYes) return point;
  }
  // A small space is nearly used up: what is left is found by looking at all of it.
  const std::uint64_t size = grid_size(space, kMostScanned);
  for (std::uint64_t i = 0; size < kMostScanned && i < size; ++i) {
    Point point = grid_point(space, i);
    if (tried.insert(key_of(point)).second && judge(point).use == Use::kYes) return point;
  }
  return std::nullopt;
}

std::unique_ptr<Strategy> random_strategy(const Space& space, const StrategySettings& settings) {
  return std::make_unique<RandomSearch>(space, settings);
}

}  // namespace ipexrun::tuner
