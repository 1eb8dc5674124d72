#include "preload/select/drift.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace ipexrun::preload {
namespace {

constexpr std::uint64_t kNever = ~std::uint64_t{0};
constexpr std::uint64_t kThreadCalls = 1 << 17;  ///< ThreadPasses: a mark is above them, whether it came twice is the lowest bit
static_assert(kLongestPass <= kThreadCalls / 2);
constexpr std::uint64_t kManyWaiting = 8;  ///< as many, and a quarter of those found fine, do not wait for a pass without news

}  // namespace

bool grows_from_pass_to_pass(const std::vector<double>& errors) noexcept {
  constexpr double kAtLeast = 1.3;
  constexpr double kNothing = 1e-4;  // far below what bf16 does: an exact product, a state that stays where it is
  const std::size_t quarter = errors.size() / 4;
  if (quarter == 0) return false;
  const auto mean = [&](std::size_t from) {
    double sum = 0;
    for (std::size_t i = from; i < from + quarter; ++i) sum += errors[i];
    return sum / static_cast<double>(quarter);
  };
  const double late = mean(errors.size() - quarter);
  return late > kNothing && late > kAtLeast * mean(quarter);
}

std::uint64_t PassFinder::call(std::uint64_t mark, std::uint32_t epoch, std::uint32_t span) noexcept {
  ++calls_;
  if (calls_ - start_ > kLongestPass) {
    first_ = preferred_ = 0;
    start_ = calls_;
  }
  if (epoch != epoch_) first_ = 0;
  epoch_ = epoch;
  if (mark == 0) return 0;
  if (preferred_ != 0 ? mark == preferred_ && first_ != preferred_ : first_ == 0 || mark < first_) {
    first_ = mark;
    start_ = calls_;
    seen_ = 0;
    before_ = 0;
    return 0;
  }
  if (mark != first_ || ++seen_ < span) return 0;
  seen_ = 0;
  const std::uint64_t length = calls_ - start_;
  start_ = calls_;
  const std::uint64_t before = std::exchange(before_, length);
  if (before == 0) return 0;
  return before == length ? length : before + length;
}

void ThreadPasses::ended(std::uint64_t mark, std::uint64_t calls) noexcept {
  if (mark == 0 || calls >= kLongestPass) return;
  const std::uint64_t now = mark * kThreadCalls + calls * 2;
  std::atomic<std::uint64_t>& last = last_[mark % kKinds];
  last.store(now + (last.load(std::memory_order_relaxed) / 2 == now / 2 ? 1 : 0), std::memory_order_relaxed);
}

std::uint64_t ThreadPasses::length(std::uint64_t mark) const noexcept {
  const std::uint64_t last = last_[mark % kKinds].load(std::memory_order_relaxed);
  return last / kThreadCalls == mark && last % 2 == 1 ? last % kThreadCalls / 2 : 0;
}

void DriftLedger::wait(DriftMark& mark, std::int64_t saving_ns) noexcept {
  const std::int64_t lost_ns = std::max<std::int64_t>(saving_ns, 0);
  lost_ns_.fetch_add(lost_ns, std::memory_order_relaxed);
  lost_since_end_ns_.fetch_add(lost_ns, std::memory_order_relaxed);
  const std::uint32_t epoch = epoch_.load(std::memory_order_relaxed);
  if (mark.counted_in.exchange(epoch, std::memory_order_relaxed) == epoch) return;
  waiting_.fetch_add(1, std::memory_order_relaxed);
  if (aborts_in_a_row_.load(std::memory_order_relaxed) < kMaxAborts) watch_from_.store(0, std::memory_order_relaxed);
}

bool DriftLedger::begin(std::int64_t price_ns, bool can_afford, bool pinned) noexcept {
  const std::uint64_t waiting = waiting_.load(std::memory_order_relaxed);
  const bool again = again_.load(std::memory_order_relaxed);
  const bool due = again || waiting == 0;  // nobody waits: another look at what was let through
  const std::int64_t price_now_ns = price_ns << std::min(barren_.load(std::memory_order_relaxed), 20);
  long_wait_ns_.store(std::max(kLongWaitNs, 4 * price_ns), std::memory_order_relaxed);
  if (!pinned && !(due && can_afford) && lost_ns_.load(std::memory_order_relaxed) < price_now_ns) {
    if (!due && price_ns < kShortCheckNs) {
      rests_until_lost_ns_.store(price_now_ns, std::memory_order_relaxed);
      rests_.fetch_add(1, std::memory_order_relaxed);
    }
    return false;
  }
  const std::uint64_t before = waiting_before_.exchange(waiting, std::memory_order_relaxed);
  const std::uint64_t many = std::max(kManyWaiting, fine_.load(std::memory_order_relaxed) / 4);
  // Sites are decided one after the other: a check at each of them would cost more than it lets them gain.
  if (waiting != before && waiting < many && !again) return false;
  if (claimed_.exchange(true, std::memory_order_acquire)) return false;
  earned_ns_ = lost_ns_.exchange(0, std::memory_order_relaxed);
  rests_until_lost_ns_.store(0, std::memory_order_relaxed);
  waited_ = waiting;
  return true;
}

void DriftLedger::settle(DriftMark& mark, DriftVerdict verdict) noexcept {
  const DriftVerdict was = mark.verdict.exchange(verdict, std::memory_order_relaxed);
  if (was == verdict) return;
  const auto counter = [this](DriftVerdict of) {
    return of == DriftVerdict::kFine ? &fine_ : of == DriftVerdict::kTooFar ? &too_far_ : nullptr;
  };
  if (auto* from = counter(was)) from->fetch_sub(1, std::memory_order_relaxed);
  if (auto* to = counter(verdict)) to->fetch_add(1, std::memory_order_relaxed);
}

void DriftLedger::search(bool good, double drift) {
  (good ? high_ : low_) = held_;
  const std::size_t step = std::max<std::size_t>(searched_.size() / kSearchParts, 1);
  if (high_ - low_ <= step) {
    for (std::size_t i = 0; i < high_; ++i) settle(*searched_[i].mark, DriftVerdict::kTooFar);
    for (std::size_t i = high_; i < searched_.size(); ++i) {  // a good pass made no use of it
      if (searched_[i].mark->verdict.load(std::memory_order_relaxed) == DriftVerdict::kTried)
        settle(*searched_[i].mark, DriftVerdict::kUnknown);
    }
    searched_.clear();
    return;
  }
  const auto tried = static_cast<double>(searched_.size() - low_);
  const bool hopeless = !good && drift > kHopelessAlone * kMaxDrift * std::sqrt(tried);
  held_ = hopeless ? high_ - step : (low_ + high_) / 2;
  for (std::size_t i = 0; i < high_; ++i) settle(*searched_[i].mark, i < held_ ? DriftVerdict::kHeld : DriftVerdict::kTried);
}

void DriftLedger::note_yield(const std::vector<DriftUse>& uses) noexcept {
  const bool met = std::any_of(uses.begin(), uses.end(), [](const DriftUse& use) {
    const DriftVerdict verdict = use.mark->verdict.load(std::memory_order_relaxed);
    return verdict == DriftVerdict::kUnknown || verdict == DriftVerdict::kTried;
  });
  if (met || waited_ == 0) {
    barren_.store(0, std::memory_order_relaxed);
    return;
  }
  barren_.fetch_add(1, std::memory_order_relaxed);
  const std::uint32_t span = span_.load(std::memory_order_relaxed);
  span_.store(std::min(span + std::max<std::uint32_t>(span / 2, 1), kMostSpan), std::memory_order_relaxed);
}

/// The pass was good, but others with the same uses may not be.
bool DriftLedger::wants_another_look(const SampleErrors& errors) {
  const std::size_t before = looks_.samples();
  looks_.add(errors);
  const bool same_again = look_count_ > 0 && looks_.samples() == before;  // a program that makes one call again and again
  if (same_again || looks_.worst_of_a_thousand() <= kMaxDrift || ++look_count_ == kMostLooks) return false;
  return looks_.at_least_with(static_cast<double>(kMostLooks) / look_count_) <= kMaxDrift;
}

void DriftLedger::finish(const std::vector<DriftUse>& uses, const SampleErrors& errors, std::uint64_t calls) {
  note_yield(uses);
  const double drift = errors.worst();
  bool good = drift <= kMaxDrift;  // false for NaN
  // What was let through had samples enough then: a later look has those of its moment alone, of which the worst counts.
  const bool proven = std::ranges::all_of(
      uses, [](const DriftUse& use) { return use.mark->verdict.load(std::memory_order_relaxed) == DriftVerdict::kFine; });
  if (good && !proven && wants_another_look(errors)) {
    checks_.fetch_add(1, std::memory_order_relaxed);
    again_.store(true, std::memory_order_relaxed);
    conclude(drift, 0);
    return;
  }
  const double of_others = good && !proven ? looks_.worst_of_a_thousand() : 0;
  good = good && of_others <= kMaxDrift;
  looks_ = {};
  look_count_ = 0;
  const bool searching = !searched_.empty();
  if (!good && !searching) {
    for (const DriftUse& use : uses) {
      if (use.mark->verdict.load(std::memory_order_relaxed) != DriftVerdict::kFine) searched_.push_back(use);
    }
    if (searched_.empty()) searched_ = uses;
    high_ = searched_.size();
    held_ = 0;
  }
  if (!good && too_far_beyond_modules()) {
    // Some passes hold what the program makes of its results and others do not (an integrator judges every sixth): halving would let
    // through by chance.
    for (const DriftUse& use : searched_) settle(*use.mark, DriftVerdict::kTooFar);
    for (const DriftUse& use : uses) settle(*use.mark, DriftVerdict::kTooFar);
    searched_.clear();
  }
  if (good) {
    for (const DriftUse& use : uses) settle(*use.mark, DriftVerdict::kFine);
  }
  if (!searched_.empty()) search(good, std::max(drift, of_others));
  searching_.store(!searched_.empty(), std::memory_order_relaxed);
  checks_.fetch_add(1, std::memory_order_relaxed);
  if (!good) failed_.fetch_add(1, std::memory_order_relaxed);
  const bool again = !searched_.empty() || (!good && !uses.empty());
  again_.store(again, std::memory_order_relaxed);
  conclude(drift, again ? 0 : std::max(calls, kLongestPass) * kRecheckFactor);
}

void DriftLedger::conclude(double drift, std::uint64_t next_from) noexcept {
  last_.store(drift, std::memory_order_relaxed);
  lost_since_end_ns_.store(0, std::memory_order_relaxed);
  aborts_in_a_row_.store(0, std::memory_order_relaxed);
  count_anew();
  watch_from_.store(next_from, std::memory_order_relaxed);
  release();
}

/// Uses that a check did not make count themselves again.
void DriftLedger::count_anew() noexcept {
  epoch_.fetch_add(1, std::memory_order_relaxed);
  waiting_.store(0, std::memory_order_relaxed);
  waiting_before_.store(0, std::memory_order_relaxed);
  rests_until_lost_ns_.store(0, std::memory_order_relaxed);
}

void DriftLedger::postpone(std::int64_t cost_ns) noexcept {
  lost_ns_.fetch_add(std::max<std::int64_t>(earned_ns_ - cost_ns, 0), std::memory_order_relaxed);
  span_.store(1, std::memory_order_relaxed);  // of another weight
  count_anew();
  again_.store(true, std::memory_order_relaxed);
  release();
}

void DriftLedger::abort() noexcept {
  count_anew();
  aborted_.fetch_add(1, std::memory_order_relaxed);
  span_.store(1, std::memory_order_relaxed);
  if (aborts_in_a_row_.fetch_add(1, std::memory_order_relaxed) + 1 >= kMaxAborts) watch_from_.store(kNever, std::memory_order_relaxed);
  release();
}

void DriftLedger::release() noexcept { claimed_.store(false, std::memory_order_release); }

DriftCounts DriftLedger::counts() const noexcept {
  DriftCounts counts;
  counts.checks = checks_.load(std::memory_order_relaxed);
  counts.failed = failed_.load(std::memory_order_relaxed);
  counts.aborted = aborted_.load(std::memory_order_relaxed);
  counts.waiting = waiting_.load(std::memory_order_relaxed);
  counts.fine = fine_.load(std::memory_order_relaxed);
  counts.too_far = too_far_.load(std::memory_order_relaxed);
  counts.last = last_.load(std::memory_order_relaxed);
  return counts;
}

}  // namespace ipexrun::preload
