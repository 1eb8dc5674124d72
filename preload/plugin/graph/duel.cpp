#include "preload/plugin/graph/duel.h"

#include <cstddef>
#include <mutex>
#include <new>
#include <unordered_map>

namespace ipexrun::preload::graph {
namespace {

constexpr std::size_t kMostDuels = 8192;

std::atomic<std::uint64_t> runs_of_all{0};
DuelMemory memory_of_all;
thread_local std::int64_t excess_here_ns = 0;

struct Hash {
  std::size_t operator()(const DuelKey& key) const noexcept {
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (const std::int64_t value : {key.kind, key.m, key.n, key.k, key.detail, static_cast<std::int64_t>(key.threads)}) {
      hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x9e3779b97f4a7c15u;
      hash ^= hash >> 29;
    }
    return static_cast<std::size_t>(hash);
  }
};

}  // namespace

int Duel::way(int ways, const WaysTried& tried) noexcept {
  int winner = winner_.load(std::memory_order_acquire);
  if (winner < 0 && known_.way >= 0 && known_.way < ways && known_.ways == ways && !is_out(known_.way) &&
      winner_.compare_exchange_strong(winner, known_.way, std::memory_order_acq_rel)) {
    return known_.way;
  }
  if (winner >= 0) return winner;
  int own = -1;    // of those that the step has been through
  int other = -1;  // of the rest
  int own_runs = 0;
  int other_begun = 0;
  for (int way = 0; way < ways; ++way) {
    const auto at = static_cast<std::size_t>(way);
    if (out_[at].load(std::memory_order_relaxed)) continue;
    const int runs = runs_[at].load(std::memory_order_relaxed);
    const int begun = begun_[at].load(std::memory_order_relaxed);
    if (begun == 0) return way;
    if (runs >= wanted(way, ways)) continue;
    if (tried.has(way)) {
      if (own >= 0 && runs >= own_runs) continue;
      own = way;
      own_runs = runs;
    } else if (other < 0 || begun < other_begun) {
      other = way;
      other_begun = begun;
    }
  }
  return own >= 0 ? own : other >= 0 ? other : 0;
}

std::uint64_t duel_runs() noexcept { return runs_of_all.load(std::memory_order_relaxed); }

std::int64_t duel_excess_here_ns() noexcept { return excess_here_ns; }

std::int64_t Duel::best_ns(int ways) const noexcept {
  std::int64_t best = 0;
  for (int way = 0; way < ways; ++way) {
    const auto at = static_cast<std::size_t>(way);
    const std::int64_t least = least_[at].load(std::memory_order_relaxed);
    if (least > 0 && (best == 0 || least < best) && !out_[at].load(std::memory_order_relaxed)) best = least;
  }
  return best;
}

void Duel::took(int way, int ways, std::int64_t ns, bool counts) noexcept {
  runs_of_all.fetch_add(1, std::memory_order_relaxed);
  const auto at = static_cast<std::size_t>(way);
  const std::int64_t best = best_ns(ways);
  const bool is_best = counts && least_[at].load(std::memory_order_relaxed) == best;
  if (best > 0 && ns > best && !is_best) excess_here_ns += ns - best;
  if (decided()) return;
  if (counts) {
    std::int64_t least = least_[at].load(std::memory_order_relaxed);
    while ((least == 0 || ns < least) && !least_[at].compare_exchange_weak(least, ns, std::memory_order_relaxed)) {
    }
  }
  (counts ? runs_ : begun_)[at].fetch_add(1, std::memory_order_relaxed);
  decide(ways);
}

void Duel::failed(int way, int ways) noexcept {
  out_[static_cast<std::size_t>(way)].store(true, std::memory_order_relaxed);
  int winner = way;
  // Where it had won here, the next best one is known; where in another process, the rest are raced.
  winner_.compare_exchange_strong(winner, -1, std::memory_order_acq_rel);
  decide(ways);
}

int Duel::wanted(int way, int ways) const noexcept {
  const std::int64_t mine = least_[static_cast<std::size_t>(way)].load(std::memory_order_relaxed);
  if (mine < kLongNs) return kRuns;
  for (int other = 0; other < ways; ++other) {
    const auto at = static_cast<std::size_t>(other);
    const std::int64_t least = least_[at].load(std::memory_order_relaxed);
    if (least > 0 && !out_[at].load(std::memory_order_relaxed) && static_cast<double>(mine) > kFar * static_cast<double>(least)) return 1;
  }
  return kLongRuns;
}

void Duel::decide(int ways) noexcept {
  if (decided()) return;
  int best = -1;
  double best_ns = 0;
  int left = 0;
  for (int way = 0; way < ways; ++way) {
    const auto at = static_cast<std::size_t>(way);
    if (out_[at].load(std::memory_order_relaxed)) continue;
    ++left;
    best = best < 0 ? way : best;
  }
  for (int way = 0; left > 1 && way < ways; ++way) {
    const auto at = static_cast<std::size_t>(way);
    if (out_[at].load(std::memory_order_relaxed)) continue;
    if (runs_[at].load(std::memory_order_relaxed) < wanted(way, ways)) return;
    const auto ns = static_cast<double>(least_[at].load(std::memory_order_relaxed)) * (way == 0 ? kFaster : 1);
    if (best_ns != 0 && ns >= best_ns) continue;
    best = way;
    best_ns = ns;
  }
  winner_.store(best < 0 ? 0 : best, std::memory_order_release);
  if (left < 2 || memory_.remember == nullptr) return;
  memory_.remember(*key_, {best, ways, least_[0].load(std::memory_order_relaxed),
                           least_[static_cast<std::size_t>(best)].load(std::memory_order_relaxed)});
}

void set_duel_memory(const DuelMemory& memory) noexcept { memory_of_all = memory; }

Duel* duel_of(const DuelKey& key) noexcept {
  static auto* mutex = new std::mutex;
  static auto* all = new std::unordered_map<DuelKey, Duel, Hash>;
  const std::lock_guard<std::mutex> hold(*mutex);
  try {
    const auto found = all->find(key);
    if (found != all->end()) return &found->second;
    if (all->size() >= kMostDuels) return nullptr;
    const auto made = all->try_emplace(key).first;  // its key lies where it is for good
    made->second.remember_in(&made->first, memory_of_all);
    return &made->second;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace ipexrun::preload::graph
