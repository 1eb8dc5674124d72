#include "launcher/run/restart.h"

#include <algorithm>

namespace ipexrun::launcher {

std::chrono::milliseconds pause_before(int n, std::chrono::milliseconds first) {
  std::chrono::milliseconds pause = first;
  for (int i = 1; i < n && pause < kLongestPause; ++i) pause *= 2;
  return std::min(pause, kLongestPause);
}

std::optional<std::chrono::milliseconds> Restarts::plan(std::size_t i, Time now) {
  if (made_[i] >= most_) return std::nullopt;
  const auto pause = pause_before(++made_[i], first_pause_);
  due_[i] = now + pause;
  return pause;
}

std::optional<std::size_t> Restarts::take_due(Time now) {
  for (std::size_t i = 0; i < due_.size(); ++i) {
    if (!due_[i] || *due_[i] > now) continue;
    due_[i].reset();
    return i;
  }
  return std::nullopt;
}

std::optional<Restarts::Time> Restarts::next() const {
  std::optional<Time> out;
  for (const auto& due : due_) {
    if (due && (!out || *due < *out)) out = due;
  }
  return out;
}

std::vector<std::size_t> Restarts::cancel() {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < due_.size(); ++i) {
    if (due_[i]) out.push_back(i);
    due_[i].reset();
  }
  most_ = 0;
  return out;
}

}  // namespace ipexrun::launcher
