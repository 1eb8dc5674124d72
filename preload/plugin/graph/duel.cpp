#include "preload/plugin/graph/duel.h"

#include <cstddef>
#include <mutex>
#include <new>
#include <unordered_map>

namespace ipexrun::preload::graph {
namespace {

constexpr std::size_t kMostDuels = 8192;

std::atomic<std::uint64_t> runs_of_all{0};

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

int Duel::way() const noexcept {
  const int winner = winner_.load(std::memory_order_acquire);
  if (winner >= 0) return winner;
  return runs_[0].load(std::memory_order_relaxed) <= runs_[1].load(std::memory_order_relaxed) ? 0 : 1;
}

std::uint64_t duel_runs() noexcept { return runs_of_all.load(std::memory_order_relaxed); }

void Duel::took(int way, std::int64_t ns) noexcept {
  runs_of_all.fetch_add(1, std::memory_order_relaxed);
  if (decided()) return;
  const auto at = static_cast<std::size_t>(way);
  const int before = runs_[at].fetch_add(1, std::memory_order_relaxed);
  if (before > 0) {
    std::int64_t least = least_[at].load(std::memory_order_relaxed);
    while ((least == 0 || ns < least) && !least_[at].compare_exchange_weak(least, ns, std::memory_order_relaxed)) {
    }
  }
  if (runs_[0].load(std::memory_order_relaxed) <= kRuns || runs_[1].load(std::memory_order_relaxed) <= kRuns) return;
  const auto first = static_cast<double>(least_[0].load(std::memory_order_relaxed));
  winner_.store(static_cast<double>(least_[1].load(std::memory_order_relaxed)) < kFaster * first ? 1 : 0, std::memory_order_release);
}

Duel* duel_of(const DuelKey& key) noexcept {
  static auto* mutex = new std::mutex;
  static auto* all = new std::unordered_map<DuelKey, Duel, Hash>;
  const std::lock_guard<std::mutex> hold(*mutex);
  try {
    const auto found = all->find(key);
    if (found != all->end()) return &found->second;
    return all->size() < kMostDuels ? &(*all)[key] : nullptr;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace ipexrun::preload::graph
