#include <algorithm>
#include <numeric>
#include <set>

#include "tuner/strategies/strategy.h"

namespace ipexrun::tuner {
namespace {

constexpr std::uint64_t kMostShuffled = 1u << 20;
constexpr int kMostUseless = 20000;  // drawn in a row that cannot be launched: half a minute of planning

/// Every combination. A grid that does not fit into the allowed trials is visited in an order by chance: its first corner says little.
class Grid final : public Strategy {
 public:
  Grid(const Space& space, const StrategySettings& settings) : space_(space), size_(grid_size(space)), random_(settings.seed) {
    if (settings.in_order || size_ <= static_cast<std::uint64_t>(settings.max_trials)) return;
    if (size_ > kMostShuffled) {
      for (const Parameter& one : space_.parameters) values_.push_back(grid_values(one));
      return;
    }
    order_.resize(size_);
    std::iota(order_.begin(), order_.end(), 0u);
    for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random_() % i]);
  }

  Result<Answer> ask(const History& history, const Judge& judge) override {
    for (; seen_ < history.trials.size(); ++seen_) tried_.insert(key_of(history.trials[seen_].point));
    if (!values_.empty()) return drawn(judge);
    for (; next_ < size_; ++next_) {
      Point point = grid_point(space_, order_.empty() ? next_ : order_[next_]);
      if (!tried_.insert(key_of(point)).second || judge(point).use != Use::kYes) continue;
      ++next_;
      return Answer::point({std::move(point)});
    }
    return Answer::done("every combination of the grid was tried");
  }

 private:
  /// Of a grid that is too large for a list of it.
  Result<Answer> drawn(const Judge& judge) {
    // Where conditions leave few of them, they are drawn again and again; so are, in a new process, those of the old one.
    std::size_t again = 20 * (tried_.size() + 1000);
    for (int useless = 0; useless < kMostUseless && again > 0;) {
      Point point;
      for (std::size_t i = 0; i < values_.size(); ++i) {
        const Value& value = values_[i][random_() % values_[i].size()];  // for inactive ones too: the rest stays the same
        if (is_active(space_.parameters[i], point)) point[space_.parameters[i].name] = value;
      }
      if (!tried_.insert(key_of(point)).second) {
        --again;
        continue;
      }
      if (judge(point).use == Use::kYes) return Answer::point({std::move(point)});
      ++useless;
    }
    return Answer::done("no further combination of the grid was found that could be tried");
  }

  Space space_;
  std::uint64_t size_;
  Random random_;
  std::vector<std::uint32_t> order_;
  std::vector<std::vector<Value>> values_;  ///< of each parameter, where there is no order
  std::uint64_t next_ = 0;
  std::size_t seen_ = 0;
  std::set<std::string> tried_;
};

}  // namespace

std::unique_ptr<Strategy> grid_strategy(const Space& space, const StrategySettings& settings) {
  return std::make_unique<Grid>(space, settings);
}

}  // namespace ipexrun::tuner
