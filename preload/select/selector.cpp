#include "preload/select/selector.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace ipexrun::preload {
namespace {

/// The thread's CPU clock is a system call: short calls, which hardly ever meet a stall, do without.
constexpr std::int64_t kWorthAskingNs = 50'000;

bool meets_stalls(const Site& site) noexcept { return site.stock_ns.load(std::memory_order_relaxed) >= kWorthAskingNs; }

/// Whether the calling thread does all of a call. Then what it stands still is the doing of others, which comes at regular distances where
/// they take turns on its core: in races of some pairs it met one of the two alone, who lost (or won) for it.
bool by_this_thread(const Site& site) noexcept { return site.id.threads == 1 && meets_stalls(site); }

thread_local std::int64_t answered_ns = 0;

/// Not pinned, and not seen in this process to be faster.
bool is_remembered(const Site& site) noexcept { return std::strcmp(site.reason.load(std::memory_order_relaxed), "remembered") == 0; }

/// What `run` says that it took on the wall, which may be negative, without such stalls.
template <typename Run>
std::int64_t less_stalls(Clock& clock, const Site& site, Run run) {
  if (!by_this_thread(site)) return run();
  const std::int64_t start = clock.thread_cpu_ns();
  const std::int64_t wall_ns = run();
  return wall_ns < 0 ? wall_ns : std::clamp<std::int64_t>(clock.thread_cpu_ns() - start, 1, wall_ns);
}

}  // namespace

/// The right to measure: one thread of the process at a time, never waited for. Two races at once would time each other.
class Selector::Claim {
 public:
  explicit Claim(std::atomic<bool>& flag) : flag_(flag), held_(!flag.exchange(true, std::memory_order_acquire)) {}
  ~Claim() {
    if (held_) flag_.store(false, std::memory_order_release);
  }
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;
  explicit operator bool() const { return held_; }

 private:
  std::atomic<bool>& flag_;
  bool held_;
};

Selector::Selector(Clock& clock, SelectorOptions options, OnDecision on_decision, OnRaceOver on_race_over)
    : clock_(clock), options_(options), on_decision_(on_decision), on_race_over_(on_race_over), exploring_allowed_(options.timing) {}

void Selector::stop_exploring() noexcept { exploring_allowed_.store(false, std::memory_order_relaxed); }

bool Selector::may_explore(std::int64_t predicted_ns, std::int64_t start_ns) const noexcept {
  if (!exploring_allowed_.load(std::memory_order_relaxed)) return false;
  const std::int64_t times = options_.thorough ? kThoroughTimes : 1;
  return explored_ns() + predicted_ns <= times * std::max(start_ns, tier_ns() / kBudgetShare) + saved_ns() / kSavedShare;
}

bool Selector::may_race(const Site& site) const noexcept {
  if (site.best == kStock) return may_explore(predicted_ns(site));
  return may_explore(2 * site.choice_ns.load(std::memory_order_relaxed), kStartBudgetOfWinnersNs);
}

Selector::StockTime Selector::time_stock(Site& site, Trial& trial) {
  const bool ask = meets_stalls(site);
  const std::int64_t cpu_start = ask ? clock_.thread_cpu_ns() : 0;
  const std::int64_t start = clock_.now_ns();
  trial.run_stock();
  const std::int64_t taken = std::max<std::int64_t>(clock_.now_ns() - start, 1);
  const std::int64_t cpu = ask ? clock_.thread_cpu_ns() - cpu_start : taken;
  site.stock_cpu_ns.store(cpu, std::memory_order_relaxed);
  return {taken, cpu};
}

/// What trying a candidate once will take, about: as much CPU time as stock, and the check.
std::int64_t Selector::predicted_ns(const Site& site) {
  const std::int64_t cpu_ns = site.stock_cpu_ns.load(std::memory_order_relaxed);
  return 2 * (cpu_ns > 0 ? cpu_ns : site.stock_ns.load(std::memory_order_relaxed));
}

/// A call that began at `start_ns` is over; its answer alone took `answer_ns`. Both of the clock on the wall.
void Selector::note_beside(const Site& site, std::int64_t start_ns, std::int64_t answer_ns) noexcept {
  const std::int64_t expected_ns = site.expected_ns.load(std::memory_order_relaxed);
  if (expected_ns > 0) answer_ns = std::min(answer_ns, expected_ns);
  beside_ns_.fetch_add(std::max<std::int64_t>(clock_.now_ns() - start_ns - answer_ns, 0), std::memory_order_relaxed);
}

/// What a call of the candidate costs, its preparation (weight lookup and check) included; negative when it failed.
std::int64_t Selector::time_candidate(Trial& trial, int candidate) {
  const std::int64_t start = clock_.now_ns();
  const Readiness ready = trial.prepare(candidate, Purpose::kBeside);
  if (ready == Readiness::kNotNow || ready == Readiness::kNever || !trial.run(candidate)) return -1;
  return std::max<std::int64_t>(clock_.now_ns() - start, 1);
}

int Selector::timed_stock(Site& site, Trial& trial) {
  const std::int64_t start = clock_.now_ns();
  const StockTime stock = time_stock(site, trial);
  note_beside(site, start, stock.wall_ns);
  site.stock_ns.store(stock.wall_ns, std::memory_order_relaxed);
  tier_ns_.fetch_add(stock.cpu_ns, std::memory_order_relaxed);
  return kStock;
}

int Selector::call(Site& site, Trial& trial) {
  const std::uint64_t number = site.calls.fetch_add(1, std::memory_order_relaxed);
  if (site.state.load(std::memory_order_acquire) == SiteState::kExploring) {
    return exploring_allowed_.load(std::memory_order_relaxed) ? explore(site, trial) : answer(site, trial);
  }
  const int choice = site.choice.load(std::memory_order_relaxed);
  if (choice != kStock) return run_decided(site, trial, choice);
  const std::uint64_t rematch_at = site.rematch_at.load(std::memory_order_relaxed);
  if (rematch_at != 0 && number >= rematch_at) rematch(site);
  if (number % kSampleEvery == 0) {
    tier_ns_.fetch_add(time_stock(site, trial).cpu_ns * static_cast<std::int64_t>(kSampleEvery), std::memory_order_relaxed);
  } else {
    trial.run_stock();
  }
  return kStock;
}

bool Selector::leaves_to_stock(Site& site) noexcept {
  if (site.choice.load(std::memory_order_relaxed) != kStock) return false;
  if (site.state.load(std::memory_order_acquire) == SiteState::kExploring) {
    if (exploring_allowed_.load(std::memory_order_relaxed)) {
      const std::uint32_t left = site.left_out.load(std::memory_order_relaxed);
      if (left == 0) return false;
      site.left_out.store(left - 1, std::memory_order_relaxed);
    }
    site.calls.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  if (site.rematch_at.load(std::memory_order_relaxed) != 0 || site.calls.load(std::memory_order_relaxed) % kSampleEvery == 0) return false;
  site.calls.fetch_add(1, std::memory_order_relaxed);
  return true;
}

/// What a candidate finds only while it computes (equal numbers, cells that grow) tends to be there in the next call as well, and costs as
/// much.
void Selector::note_failure(Site& site) noexcept {
  constexpr std::uint32_t kFree = 4;
  constexpr std::uint32_t kMostDoublings = 10;
  const std::uint32_t failures = site.failures.fetch_add(1, std::memory_order_relaxed) + 1;
  if (failures > kFree) site.rest.store(1u << std::min(failures - kFree, kMostDoublings), std::memory_order_relaxed);
}

int Selector::run_decided(Site& site, Trial& trial, int choice) {
  if (const std::uint32_t rest = site.rest.load(std::memory_order_relaxed); rest > 0) {
    site.rest.store(rest - 1, std::memory_order_relaxed);
    trial.run_stock();
    return kStock;
  }
  if (site.rechecking.load(std::memory_order_relaxed) && may_explore(predicted_ns(site))) {
    return recheck(site, trial, choice);
  }
  const bool sampled = site.calls.load(std::memory_order_relaxed) % kSampleEvery == 0;
  const bool by_cpu = sampled && by_this_thread(site);
  const auto now_ns = [&] { return by_cpu ? clock_.thread_cpu_ns() : clock_.now_ns(); };
  const std::int64_t start = sampled ? now_ns() : 0;
  const Readiness ready = trial.prepare(choice, Purpose::kAnswer);
  if (ready == Readiness::kUnverified) return check_first(site, trial, choice);
  if (ready != Readiness::kReady || !trial.run(choice)) {
    if (ready == Readiness::kReady) note_failure(site);
    tier_ns_.fetch_add(time_stock(site, trial).cpu_ns, std::memory_order_relaxed);
    return kStock;
  }
  site.failures.store(0, std::memory_order_relaxed);
  take(site, trial, choice);
  if (sampled) note_sample(site, std::max<std::int64_t>(now_ns() - start, 1));
  return choice;
}

std::int64_t Selector::answered_here_ns() noexcept { return answered_ns; }

void Selector::take(Site& site, Trial& trial, int choice) {
  trial.take(choice);
  answered_ns += site.choice_ns.load(std::memory_order_relaxed);
  site.taken.fetch_add(1, std::memory_order_relaxed);
  saved_ns_.fetch_add(
      std::max<std::int64_t>(site.stock_ns.load(std::memory_order_relaxed) - site.choice_ns.load(std::memory_order_relaxed), 0),
      std::memory_order_relaxed);
}

/// A call in which nothing is tried, at a site that still explores.
int Selector::answer(Site& site, Trial& trial) {
  const int choice = site.choice.load(std::memory_order_relaxed);
  if (choice == kStock && !exploring_allowed_.load(std::memory_order_relaxed)) {
    trial.run_stock();
    return kStock;
  }
  if (choice == kStock) return timed_stock(site, trial);
  const Readiness ready = trial.prepare(choice, Purpose::kAnswer);
  if (ready == Readiness::kUnverified) return check_first(site, trial, choice);
  if (ready != Readiness::kReady || !trial.run(choice)) return timed_stock(site, trial);
  take(site, trial, choice);
  tier_ns_.fetch_add(site.choice_ns.load(std::memory_order_relaxed), std::memory_order_relaxed);
  return choice;
}

/// A weight that is new at a decided site: the user gets stock's result once more while the candidate's is checked. That the check ends
/// beyond the budget is allowed: it is one, what it is for is known to be faster, and calls that take more than half of the budget would
/// wait for long.
int Selector::check_first(Site& site, Trial& trial, int candidate) {
  if (!site.pinned && !may_explore(0)) {
    tier_ns_.fetch_add(time_stock(site, trial).cpu_ns, std::memory_order_relaxed);
    return kStock;
  }
  explorations_.fetch_add(1, std::memory_order_relaxed);
  const std::int64_t wall_start = clock_.now_ns();
  const std::int64_t start = clock_.thread_cpu_ns();
  const StockTime stock = time_stock(site, trial);
  if (trial.run(candidate)) static_cast<void>(trial.verify(candidate));
  tier_ns_.fetch_add(stock.cpu_ns, std::memory_order_relaxed);
  explored_ns_.fetch_add(clock_.thread_cpu_ns() - start - stock.cpu_ns, std::memory_order_relaxed);
  note_beside(site, wall_start, stock.wall_ns);
  return kStock;
}

int Selector::call_forced(Site& site, Trial& trial, int candidate) {
  site.calls.fetch_add(1, std::memory_order_relaxed);
  const Readiness ready = trial.prepare(candidate, Purpose::kAnswer);
  bool good = false;
  if (ready == Readiness::kUnverified) {
    explorations_.fetch_add(1, std::memory_order_relaxed);
    trial.run_stock();
    good = trial.run(candidate) && trial.verify(candidate);
    if (!good) return kStock;
  } else if (ready == Readiness::kReady) {
    good = trial.run(candidate);
  }
  if (!good) {
    trial.run_stock();
    return kStock;
  }
  trial.take(candidate);
  site.taken.fetch_add(1, std::memory_order_relaxed);
  return candidate;
}

bool Selector::is_probe(Site& site, std::uint64_t weight) {
  if (weight == 0) return true;
  if (weight == kUnknownWeight) return false;
  for (std::uint64_t& probe : site.probes) {
    if (probe == 0) probe = weight;
    if (probe == weight) {
      site.waited = 0;
      return true;
    }
  }
  constexpr int kPatience = 64;  // the probes may have been freed: start again with the weights that are there now
  if (++site.waited > kPatience) {
    site.probes = {};
    site.waited = 0;
  }
  return false;
}

/// How many calls are left out differs each time, so that weights in turn are all met.
void Selector::note_stranger(Site& site, bool stranger) {
  site.strangers = stranger ? site.strangers + 1 : 0;
  if (site.strangers < kStrangersInARow) return;
  const std::uint64_t drawn = site.calls.load(std::memory_order_relaxed) * 0x9E3779B97F4A7C15ull >> 33;
  site.left_out.store(kLeastLeftOut + static_cast<std::uint32_t>(drawn % (kMostLeftOut - kLeastLeftOut + 1)), std::memory_order_relaxed);
}

int Selector::explore(Site& site, Trial& trial) {
  Claim claim(claimed_);
  if (!claim || site.state.load(std::memory_order_acquire) != SiteState::kExploring) return answer(site, trial);
  if (site.next >= site.candidates.size()) {
    decide(site);
    trial.run_stock();
    return kStock;
  }
  // The first lookup of a call checks the weight's bytes; later ones in the same call do not, so its time is added to each run.
  std::uint64_t weight = kUnknownWeight;
  const std::int64_t lookup_ns = less_stalls(clock_, site, [&] {
    const std::int64_t start = clock_.now_ns();
    weight = trial.weight();
    return clock_.now_ns() - start;
  });
  note_stranger(site, weight == kUnknownWeight);
  if (!is_probe(site, weight)) return answer(site, trial);
  const std::int64_t before = site.stock_ns.load(std::memory_order_relaxed);
  if (before == 0 || !may_race(site)) return answer(site, trial);
  const std::int64_t wall_start = clock_.now_ns();
  const std::int64_t start = clock_.thread_cpu_ns();
  const int challenger = site.candidates[site.next];
  const Readiness ready = trial.prepare(challenger, Purpose::kBeside);
  if (ready == Readiness::kNever) finish_race(site, RaceResult::kLost);
  if (ready == Readiness::kNever || ready == Readiness::kNotNow) {
    explored_ns_.fetch_add(clock_.thread_cpu_ns() - start, std::memory_order_relaxed);
    note_beside(site, wall_start, 0);  // the answer's own time is not over yet
    return answer(site, trial);
  }
  explorations_.fetch_add(1, std::memory_order_relaxed);
  Answered answered = run_pair(site, trial, challenger, ready == Readiness::kUnverified, lookup_ns);
  const std::int64_t spent = clock_.thread_cpu_ns() - start;
  // A candidate's time is of the clock on the wall; of the CPU time it had at most half, because the challenger ran as well.
  if (answered.choice != kStock) answered.cpu_ns = std::min(answered.cpu_ns, spent / 2);
  tier_ns_.fetch_add(answered.cpu_ns, std::memory_order_relaxed);
  explored_ns_.fetch_add(std::max<std::int64_t>(spent - answered.cpu_ns, 0), std::memory_order_relaxed);
  note_beside(site, wall_start, answered.wall_ns);
  return answered.choice;
}

Selector::Answered Selector::run_pair(Site& site, Trial& trial, int challenger, bool unverified, std::int64_t lookup_ns) {
  const int rival = site.best;
  const bool challenger_first = site.race.pairs() % 2 == 1;
  // The first race's winner will need a verdict for each weight anyway; of later challengers one weight tells enough to race on,
  // and the winner's other weights are checked at their first use.
  const bool check = unverified && (rival == kStock || !site.warm);
  const bool rival_answers = rival != kStock && !check && trial.prepare(rival, Purpose::kAnswer) == Readiness::kReady;
  StockTime stock{0, 0};
  std::int64_t stock_ns = 0;  // for the race
  const auto run_stock = [&] {
    stock = time_stock(site, trial);
    stock_ns = by_this_thread(site) ? std::clamp<std::int64_t>(stock.cpu_ns, 1, stock.wall_ns) : stock.wall_ns;
    site.stock_ns.store(stock.wall_ns, std::memory_order_relaxed);
    if (site.warm) site.stock_times.push_back(static_cast<double>(stock_ns));
  };
  const auto time = [&](int candidate) { return less_stalls(clock_, site, [&] { return time_candidate(trial, candidate); }); };
  if (rival != kStock && !rival_answers) run_stock();
  std::int64_t rival_ns = 0;
  std::int64_t challenger_ns = challenger_first ? time(challenger) : 0;
  if (rival == kStock) {
    run_stock();
    rival_ns = stock_ns;
  } else {
    rival_ns = time(rival);
  }
  if (!challenger_first) challenger_ns = time(challenger);
  Answered answered{kStock, stock.cpu_ns, stock.wall_ns};
  if (rival_answers && rival_ns >= 0) {
    take(site, trial, rival);
    answered = {rival, rival_ns, rival_ns};
  } else if (rival_answers) {
    run_stock();
    answered = {kStock, stock.cpu_ns, stock.wall_ns};
  }
  const std::int64_t lookup_of_rival_ns = rival == kStock ? 0 : lookup_ns;
  judge_pair(site, trial, check, rival_ns < 0 ? rival_ns : rival_ns + lookup_of_rival_ns,
             challenger_ns < 0 ? challenger_ns : challenger_ns + lookup_ns);
  return answered;
}

/// Negative times: it could not run.
void Selector::judge_pair(Site& site, Trial& trial, bool check, std::int64_t rival_ns, std::int64_t challenger_ns) {
  const int challenger = site.candidates[site.next];
  if (challenger_ns < 0) {
    finish_race(site, RaceResult::kLost);
    return;
  }
  if (check && !trial.verify(challenger)) {
    ++site.inaccurate;
    finish_race(site, RaceResult::kLost);
    return;
  }
  if (rival_ns < 0) {  // the best one so far is not ready for this weight
    site.race.miss();
    if (site.race.result() != RaceResult::kUndecided) finish_race(site, RaceResult::kLost);
    return;
  }
  // A candidate's first run builds its primitives and touches a fresh pack: it says nothing about the next ones.
  if (site.warm) {
    site.race.add(rival_ns, challenger_ns);
    site.expected_ns.store(std::min(site.race.rival_ns(), site.race.challenger_ns()), std::memory_order_relaxed);
  }
  site.warm = true;
  RaceResult result = site.race.result();
  constexpr int kEnoughToRank = 3;
  if (site.best == kStock && !site.must_beat_stock && site.race.pairs() >= kEnoughToRank) result = RaceResult::kWon;
  if (result != RaceResult::kUndecided) finish_race(site, result);
}

void Selector::finish_race(Site& site, RaceResult result) {
  site.samples.fetch_add(site.race.pairs(), std::memory_order_relaxed);
  if (result == RaceResult::kWon) {
    site.best = site.candidates[site.next];
    site.gain *= site.race.ratio();
    site.choice_ns.store(site.race.challenger_ns(), std::memory_order_relaxed);
    site.choice.store(site.best, std::memory_order_relaxed);  // answers from now on, while the others race against it
  } else if (site.best != kStock && site.race.pairs() > 0) {
    site.choice_ns.store(site.race.rival_ns(), std::memory_order_relaxed);
  }
  if (result == RaceResult::kWon && site.race.ratio() <= kClearRatio) site.clear_win = true;
  if (result == RaceResult::kLost && site.race.disturbed()) site.disturbed = true;
  site.expected_ns.store(0, std::memory_order_relaxed);
  site.race = Race();
  site.warm = false;
  do {
    ++site.next;
  } while (site.clear_win && site.next < site.candidates.size() && (site.needless_after_clear_win >> site.candidates[site.next] & 1u) != 0);
  if (site.next >= site.candidates.size()) {
    decide(site);
  } else if (on_race_over_ != nullptr) {
    on_race_over_(site);
  }
}

void Selector::decide(Site& site) {
  if (!site.stock_times.empty()) {
    site.stock_ns.store(static_cast<std::int64_t>(median(site.stock_times)), std::memory_order_relaxed);
  }
  const char* reason = "slower";
  if (site.best == kStock && site.disturbed && site.rematches < kMaxRematches) {
    const std::uint64_t wait = kRematchAfterCalls << (2 * site.rematches);
    site.rematch_at.store(site.calls.load(std::memory_order_relaxed) + wait, std::memory_order_relaxed);
  }
  if (site.best != kStock) {
    reason = site.must_beat_stock ? "faster" : "pinned";
    // Medians of two moments on a shared machine may say the contrary of what each pair said.
    const auto stock_ns = static_cast<double>(site.stock_ns.load(std::memory_order_relaxed));
    if (stock_ns > 0) site.choice_ns.store(std::max<std::int64_t>(std::llround(stock_ns * site.gain), 1), std::memory_order_relaxed);
  } else {
    site.choice_ns.store(site.stock_ns.load(std::memory_order_relaxed), std::memory_order_relaxed);
    if (site.samples.load(std::memory_order_relaxed) == 0) reason = site.inaccurate > 0 ? "inaccurate" : "unsupported";
  }
  site.reason.store(reason, std::memory_order_relaxed);
  site.choice.store(site.best, std::memory_order_relaxed);
  site.state.store(SiteState::kDecided, std::memory_order_release);
  if (on_decision_ != nullptr) on_decision_(site);
}

void Selector::rematch(Site& site) {
  Claim claim(claimed_);
  if (!claim || site.rematch_at.exchange(0, std::memory_order_relaxed) == 0 || !exploring_allowed_.load(std::memory_order_relaxed)) return;
  ++site.rematches;
  site.next = 0;
  site.best = kStock;
  site.gain = 1;
  site.race = Race();
  site.warm = site.clear_win = site.disturbed = false;
  site.inaccurate = site.waited = 0;
  site.stock_times.clear();
  site.probes = {};
  site.samples.store(0, std::memory_order_relaxed);
  site.state.store(SiteState::kExploring, std::memory_order_release);
}

void Selector::note_sample(Site& site, std::int64_t taken_ns) {
  tier_ns_.fetch_add(taken_ns * static_cast<std::int64_t>(kSampleEvery), std::memory_order_relaxed);
  if (!site.must_beat_stock || site.pinned) return;
  Claim claim(claimed_);
  if (!claim) return;
  site.recent.push_back(static_cast<double>(taken_ns));
  if (site.recent.size() < kRecentSamples) return;
  const double now = median(site.recent);
  site.recent.clear();
  // The machine may simply be slower now than it was: only stock's time of now can tell. And a choice that takes as long as it did in an
  // earlier process may have won there against a stock that something held back (a cap on its instructions, another program).
  if (is_remembered(site) || now > kSuspiciousRatio * static_cast<double>(site.choice_ns.load(std::memory_order_relaxed))) {
    site.recheck = Race();
    site.rechecking.store(true, std::memory_order_relaxed);
  }
}

int Selector::recheck(Site& site, Trial& trial, int choice) {
  Claim claim(claimed_);
  const Readiness ready = claim ? trial.prepare(choice, Purpose::kAnswer) : Readiness::kNotNow;
  if (ready != Readiness::kReady) {
    trial.run_stock();
    return kStock;
  }
  explorations_.fetch_add(1, std::memory_order_relaxed);
  const std::int64_t wall_start = clock_.now_ns();
  const std::int64_t cpu_start = clock_.thread_cpu_ns();
  const bool choice_first = site.recheck.pairs() % 2 == 1;
  const auto time_choice = [&] { return less_stalls(clock_, site, [&] { return time_candidate(trial, choice); }); };
  std::int64_t choice_ns = choice_first ? time_choice() : 0;
  const auto [stock_ns, stock_cpu_ns] = time_stock(site, trial);
  if (!choice_first) choice_ns = time_choice();
  tier_ns_.fetch_add(stock_cpu_ns, std::memory_order_relaxed);
  explored_ns_.fetch_add(clock_.thread_cpu_ns() - cpu_start - stock_cpu_ns, std::memory_order_relaxed);
  note_beside(site, wall_start, stock_ns);
  if (choice_ns < 0) return kStock;
  site.recheck.add(by_this_thread(site) ? std::min(stock_cpu_ns, stock_ns) : stock_ns, choice_ns);
  if (site.recheck.pairs() < kRecheckPairs) return kStock;
  site.stock_ns.store(site.recheck.rival_ns(), std::memory_order_relaxed);
  site.choice_ns.store(site.recheck.challenger_ns(), std::memory_order_relaxed);
  const bool was_remembered = is_remembered(site);
  if (site.recheck.ratio() > 1) {
    site.choice.store(kStock, std::memory_order_relaxed);
    site.reason.store("rolled back", std::memory_order_relaxed);
  } else if (was_remembered) {
    site.reason.store("faster", std::memory_order_relaxed);  // by what was seen in this process
  }
  site.rechecking.store(false, std::memory_order_relaxed);
  const bool decided = was_remembered || site.choice.load(std::memory_order_relaxed) == kStock;
  if (decided && on_decision_ != nullptr) on_decision_(site);
  return kStock;
}

}  // namespace ipexrun::preload
