#include "preload/memory/fresh_pages.h"

namespace ipexrun::preload {
namespace {

constexpr int kInARow = 4;
constexpr double kFaultNs = 500;  // at least, of a fault and the zeros of its page
constexpr double kShare = 0.02;   // of CPU time
constexpr int kLookEvery = 16;
constexpr int kMostLapses = 4;

}  // namespace

/// Of the time since the last reading, what pages took that the process had before.
double FreshPages::share_of(const PageReading& now) const {
  const auto faults = static_cast<double>(now.faults - last_.faults);
  const double grown =
      now.resident_bytes > last_.resident_bytes ? static_cast<double>((now.resident_bytes - last_.resident_bytes) / page_bytes_) : 0;
  return faults > grown ? (faults - grown) * kFaultNs / static_cast<double>(now.cpu_ns - last_.cpu_ns) : 0;
}

FreshPages::Advice FreshPages::read(const PageReading& now) {
  if (state_ == State::kLeft || (any_ && now.cpu_ns == last_.cpu_ns)) return Advice::kNothing;
  if (!any_ || now.cpu_ns < last_.cpu_ns) {  // the first one, or that of a forked child, whose clock begins anew
    any_ = true;
    last_ = now;
    return Advice::kNothing;
  }
  const double share = share_of(now);
  const double rate = static_cast<double>(now.faults - last_.faults) / static_cast<double>(now.cpu_ns - last_.cpu_ns);
  last_ = now;
  switch (state_) {
    case State::kWatching:
      if (share < kShare) {
        intervals_ = 0;
        before_ = 0;
        return Advice::kNothing;
      }
      before_ += rate / kInARow;
      if (++intervals_ < kInARow) return Advice::kNothing;
      state_ = State::kTrying;
      intervals_ = -1;  // in the next one memory is taken once more
      now_ = 0;
      return Advice::kKeep;
    case State::kTrying:
      if (intervals_ >= 0) now_ += rate / kInARow;
      if (++intervals_ < kInARow) return Advice::kNothing;
      intervals_ = 0;
      state_ = 2 * now_ <= before_ ? State::kKept : State::kLeft;
      return state_ == State::kLeft ? Advice::kAsBefore : Advice::kNothing;
    case State::kKept:
      if (++intervals_ < kLookEvery) return Advice::kNothing;
      intervals_ = 0;
      return Advice::kLook;
    case State::kLeft:
      break;
  }
  return Advice::kNothing;
}

FreshPages::Advice FreshPages::is_too_much(bool too_much) {
  lapses_ = too_much ? lapses_ + 1 : 0;
  if (lapses_ < kMostLapses) return Advice::kNothing;
  state_ = State::kLeft;
  return Advice::kAsBefore;
}

}  // namespace ipexrun::preload
