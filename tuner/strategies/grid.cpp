#include <algorithm>
#include <numeric>
#include <set>

#include "tuner/strategies/strategy.h"

namespace ipexrun::tuner {
namespace {

constexpr std::uint64_t kMostShuffled = 1u << 20;

/// Every combination. A grid that does not fit into the allowed trials is visited in an order by chance: its first corner says little.
class Grid final : public Strategy {
 public:
  Grid(const Space& space, const StrategySettings& settings) : space_(space), size_(grid_size(space)) {
    if (settings.in_order || size_ <= static_cast<std::uint64_t>(settings.max_trials) || size_ > kMostShuffled) return;
    order_.resize(size_);
    std::iota(order_.begin(), order_.end(), 0u);
    Random random(settings.seed);
    for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random() % i]);
  }

  Result<Answer> ask(const History& history, const Judge& judge) override {
    for (; seen_ < history.trials.size(); ++seen_) tried_.insert(key_of(history.trials[seen_].point));
    for (; next_ < size_; ++next_) {
      Point point = grid_point(space_, order_.empty() ? next_ : order_[next_]);
      if (!tried_.insert(key_of(point)).second || judge(point).use != Use::kYes) continue;
      ++next_;
      return Answer::point({std::move(point)});
    }
    return Answer::done("every combination of the grid was tried");
  }

 private:
  Space space_;
  std::uint64_t size_;
  std::vector<std::uint32_t> order_;
  std::uint64_t next_ = 0;
  std::size_t seen_ = 0;
  std::set<std::string> tried_;
};

}  // namespace

std::unique_ptr<Strategy> grid_strategy(const Space& space, const StrategySettings& settings) {
  return std::make_unique<Grid>(space, settings);
}

}  // namespace ipexrun::tuner
