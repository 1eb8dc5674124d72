#include "preload/select/weights.h"

#include <algorithm>
#include <bit>

#include "preload/select/fingerprint.h"
#include "preload/select/looks.h"

namespace ipexrun::preload {
namespace {

constexpr std::uint64_t kSweepEveryUses = 256;

/// Weights known at once. Beyond it those without packs that were not met for the longest time are forgotten: each position of a
/// window that slides over one large tensor would pass for a new weight for as long as the tensor lives.
constexpr std::size_t kMaxKnown = 65536;

/// Calls of days are more than an int holds; beyond this nobody asks how many there were.
constexpr int kCountsTo = 1 << 16;

int one_more(int count) { return std::min(count + 1, kCountsTo); }

std::uint64_t verdict_key(std::uint32_t site, int candidate) {
  return static_cast<std::uint64_t>(site) * kMaxCandidates + static_cast<std::uint64_t>(candidate);
}

}  // namespace

std::size_t WeightKeyHash::operator()(const WeightKey& key) const noexcept {
  std::uint64_t hash = reinterpret_cast<std::uintptr_t>(key.storage);
  for (const std::int64_t part : {key.offset, key.sizes[0], key.sizes[1], key.strides[0], key.strides[1]}) {
    hash = (hash ^ static_cast<std::uint64_t>(part)) * 0x9e3779b97f4a7c15ull;
    hash ^= hash >> 32;
  }
  return static_cast<std::size_t>(hash);
}

bool Weight::packed() const {
  return std::any_of(packs.begin(), packs.end(), [](const auto& pack) { return pack != nullptr; });
}

std::uint64_t Weight::largest_pack_bytes() const {
  std::uint64_t largest = 0;
  for (const auto& pack : packs) largest = std::max<std::uint64_t>(largest, pack == nullptr ? 0 : pack->size_bytes());
  return largest;
}

WeightTable::WeightTable(Clock& clock, WeightLimits limits) : clock_(clock), limits_(limits) {}

std::shared_ptr<Weight> WeightTable::find(const WeightKey& key) const {
  std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? nullptr : found->second;
}

std::shared_ptr<Weight> WeightTable::insert(const WeightUse& use, std::unique_ptr<Liveness> liveness) {
  auto weight = std::make_shared<Weight>();
  weight->key = use.key;
  weight->liveness = std::move(liveness);
  weight->size_bytes = use.size_bytes;
  weight->version = use.version;
  weight->sampled = sampled_hash_of_run(use.key.data, use.size_bytes);
  weight->sightings = 1;
  weight->forward_calls = use.wants_grad ? 1 : 0;
  weight->wanted_grad = use.wants_grad;
  std::lock_guard lock(mutex_);
  if (by_key_.size() >= sweep_at_) {
    sweep_locked();
    if (by_key_.size() >= kMaxKnown) {
      const std::uint64_t recent = uses_ - std::min<std::uint64_t>(uses_, kMaxKnown / 2);
      std::erase_if(by_key_, [&](const auto& entry) { return !entry.second->packed() && entry.second->last_use <= recent; });
    }
    const std::size_t size = by_key_.size();
    sweep_at_ = std::max(std::clamp<std::size_t>(2 * size, 64, kMaxKnown), size + size / 4);  // all of them may have packs
  }
  weight->id = next_id_++;
  weight->last_use = ++uses_;
  return by_key_.emplace(use.key, std::move(weight)).first->second;
}

std::uint64_t WeightTable::timed_full_hash(const WeightUse& use) noexcept {
  const std::int64_t start = clock_.now_ns();
  const std::uint64_t hash = full_hash(use.key.data, use.size_bytes, limits_.pool != nullptr ? limits_.pool() : kernels::Parallel{});
  constexpr std::size_t kWorthTiming = 65536;
  if (use.size_bytes >= kWorthTiming) {
    const std::int64_t taken_ps = (clock_.now_ns() - start) * 1000;
    hash_ps_per_byte_.store(std::max<std::int64_t>(taken_ps / static_cast<std::int64_t>(use.size_bytes), 1), std::memory_order_relaxed);
  }
  return hash;
}

/// Weights are at most about twice as large as their packs (float32 beside bf16).
std::int64_t WeightTable::full_hash_every_ns() const noexcept {
  const auto bytes = static_cast<double>(2 * pack_bytes());
  const double all_ns = bytes * static_cast<double>(hash_ps_per_byte_.load(std::memory_order_relaxed)) / 1000;
  const double every_ns = std::min(all_ns * static_cast<double>(kFullHashShare), static_cast<double>(kFullHashAtLeastEveryNs));
  return std::max(kFullHashEveryNs, static_cast<std::int64_t>(every_ns));
}

bool WeightTable::full_check_due(const Weight& weight, const WeightUse& use, std::int64_t now_ns) const {
  if (limits_.always_full_check || use.blind || use.version != weight.version) return true;
  if (weight.backward_seen != backward_seen_.load(std::memory_order_relaxed)) return true;
  if (now_ns - weight.full_at_ns >= full_hash_every_ns()) return true;
  const std::int64_t cost_ns = static_cast<std::int64_t>(use.size_bytes) * hash_ps_per_byte_.load(std::memory_order_relaxed) / 1000;
  return cost_ns * kCheapHashDivisor < use.op_ns;
}

WeightState WeightTable::check(const std::shared_ptr<Weight>& weight, const WeightUse& use, bool at_once) {
  const std::uint64_t backward = backward_seen_.load(std::memory_order_relaxed);
  const std::int64_t now = clock_.now_ns();
  bool full_due = false;
  {
    std::lock_guard lock(mutex_);
    weight->last_use = ++uses_;
    ++weight->calls;
    if (use.wants_grad) {
      weight->forward_calls = one_more(weight->forward_calls);
      weight->wanted_grad = true;
    }
    // A step of it a use, however many there are. (A power of two: two counts that grow together may divide each other for long.)
    if (uses_ % std::max(kSweepEveryUses, std::bit_ceil<std::uint64_t>(by_key_.size())) == 0) sweep_locked();
    if (weight->value_changes >= kUnstableAfter && !at_once) return {};
    if (use.wants_grad && !at_once && backward > 0) return {};
    full_due = weight->packed() && full_check_due(*weight, use, now);
  }
  const std::uint64_t sampled = sampled_hash_of_run(use.key.data, use.size_bytes);
  const std::uint64_t full = full_due ? timed_full_hash(use) : 0;

  std::lock_guard lock(mutex_);
  const bool changed = sampled != weight->sampled || (full_due && weight->packed() && full != weight->full);
  if (changed) {
    if (weight->packed()) ++weight->value_changes;
    drop_packs(*weight);
    weight->verdicts.clear();
    weight->drift.verdict.store(DriftVerdict::kUnknown, std::memory_order_relaxed);
    weight->sightings = 0;
  }
  weight->sampled = sampled;
  weight->version = use.version;
  if (full_due) {
    weight->full_at_ns = now;
    weight->backward_seen = backward;
  }
  const bool seen_enough = weight->sightings >= sightings_needed();
  weight->sightings = one_more(weight->sightings);
  if (!at_once && (!seen_enough || weight->value_changes >= kUnstableAfter)) return {};
  if (!at_once && use.wants_grad && weight->forward_calls <= kForwardCalls) return {};
  WeightState state;
  state.weight = weight;
  state.packs = weight->packs;
  return state;
}

void WeightTable::pin_bytes(Weight& weight, const WeightUse& use) {
  const std::uint64_t backward = backward_seen_.load(std::memory_order_relaxed);
  const std::uint64_t full = timed_full_hash(use);
  std::lock_guard lock(mutex_);
  // Packs made from other bytes than these would pass for true from now on.
  if (weight.packed() && weight.full != full) drop_packs(weight);
  weight.full = full;
  weight.full_at_ns = clock_.now_ns();
  weight.backward_seen = backward;
}

std::uint64_t WeightTable::bound_bytes(std::uint64_t needed_bytes, const Weight& keep, bool racing) const {
  if (!limits_.bounded_by_weights) return limits_.hard_bytes;
  std::uint64_t bytes = 0;
  for (const auto& [key, weight] : by_key_) {
    const bool settled = weight->sightings > kSightings && weight->value_changes < kUnstableAfter;
    if (!settled && weight.get() != &keep && !weight->packed()) continue;
    bytes += std::max<std::uint64_t>({weight->size_bytes, weight->largest_pack_bytes(), weight.get() == &keep ? needed_bytes : 0});
  }
  return std::min(limits_.hard_bytes, racing ? 2 * bytes : bytes);
}

bool WeightTable::make_room(std::uint64_t needed_bytes, const Weight& keep, bool racing) {
  const std::uint64_t bound = bound_bytes(needed_bytes, keep, racing);
  if (needed_bytes > bound) return false;
  while (pack_bytes() + needed_bytes > bound) {
    Weight* oldest = nullptr;
    for (const auto& [key, weight] : by_key_) {
      if (weight.get() != &keep && weight->packed() && (oldest == nullptr || weight->last_use < oldest->last_use)) oldest = weight.get();
    }
    if (oldest == nullptr) return false;
    drop_packs(*oldest);
    wait_for_room(*oldest);
  }
  return true;
}

void WeightTable::wait_for_room(Weight& weight) noexcept {
  weight.pack_from = weight.calls + (std::uint64_t{1} << weight.rooms_lost);
  weight.rooms_lost = std::min(weight.rooms_lost + 1, kMaxRoomBackoff);
}

bool WeightTable::may_pack(const Weight& weight) const {
  std::lock_guard lock(mutex_);
  return weight.calls >= weight.pack_from;
}

bool WeightTable::put(Weight& weight, int candidate, std::shared_ptr<const Pack> pack, bool racing) {
  if (read_only() || pack == nullptr) return false;
  std::lock_guard lock(mutex_);
  const auto known = by_key_.find(weight.key);
  if (known == by_key_.end() || known->second.get() != &weight) return false;  // forgotten meanwhile: its packs would be nobody's
  auto& place = weight.packs[static_cast<std::size_t>(candidate)];
  drop_pack(place);
  if (!make_room(pack->size_bytes(), weight, racing)) {
    wait_for_room(weight);
    return false;
  }
  pack_bytes_.fetch_add(pack->size_bytes(), std::memory_order_relaxed);
  place = std::move(pack);
  return true;
}

Verdict WeightTable::verdict(const Weight& weight, std::uint32_t site, int candidate) const {
  const std::uint64_t key = verdict_key(site, candidate);
  std::lock_guard lock(mutex_);
  for (const auto& [known, accurate] : weight.verdicts) {
    if (known == key) return accurate ? Verdict::kAccurate : Verdict::kInaccurate;
  }
  return Verdict::kUnknown;
}

void WeightTable::set_verdict(Weight& weight, std::uint32_t site, int candidate, bool accurate) {
  std::lock_guard lock(mutex_);
  weight.verdicts.emplace_back(verdict_key(site, candidate), accurate);
}

void WeightTable::drop_pack(std::shared_ptr<const Pack>& pack) noexcept {
  if (pack == nullptr) return;
  pack_bytes_.fetch_sub(pack->size_bytes(), std::memory_order_relaxed);
  pack.reset();
}

void WeightTable::drop_packs(Weight& weight) noexcept {
  for (auto& pack : weight.packs) drop_pack(pack);
}

void WeightTable::drop_losers(std::int64_t size0, std::int64_t size1, int dtype, std::uint32_t keep_mask) {
  std::lock_guard lock(mutex_);
  for (const auto& [key, weight] : by_key_) {
    if (key.sizes[0] != size0 || key.sizes[1] != size1 || key.dtype != dtype) continue;
    for (std::size_t candidate = 0; candidate < weight->packs.size(); ++candidate) {
      if ((keep_mask >> candidate & 1u) == 0) drop_pack(weight->packs[candidate]);
    }
  }
}

void WeightTable::drop_storage(const void* storage) {
  std::lock_guard lock(mutex_);
  for (const auto& [key, weight] : by_key_) {
    if (key.storage != storage) continue;
    drop_packs(*weight);
    weight->sightings = 0;
  }
}

void WeightTable::drop_pack_of(Weight& weight, int candidate) noexcept {
  std::lock_guard lock(mutex_);
  drop_pack(weight.packs[static_cast<std::size_t>(candidate)]);
}

std::uint64_t WeightTable::id_of(const WeightKey& key) const {
  const std::shared_ptr<Weight> weight = find(key);
  return weight == nullptr ? 0 : weight->id;
}

void WeightTable::drop_all() noexcept {
  std::lock_guard lock(mutex_);
  for (const auto& [key, weight] : by_key_) drop_packs(*weight);
}

void WeightTable::saw_backward() noexcept {
  backward_seen_.fetch_add(1, std::memory_order_relaxed);
  std::lock_guard lock(mutex_);
  for (const auto& [key, weight] : by_key_) {
    if (weight->wanted_grad) drop_packs(*weight);
  }
}

void WeightTable::sweep_locked() noexcept {
  for (auto at = by_key_.begin(); at != by_key_.end();) {
    if (at->second->liveness != nullptr && !at->second->liveness->alive()) {
      drop_packs(*at->second);
      note_death(*at->second);
      at = by_key_.erase(at);
    } else {
      ++at;
    }
  }
}

void WeightTable::note_death(const Weight& weight) noexcept {
  if (weight.sightings <= kSightings) return;  // what is new in each call is no weight
  constexpr double kShareOfTheLast = 1.0 / 16;
  const auto uses = static_cast<double>(weight.calls);
  uses_at_death_ = deaths_ == 0 ? uses : uses_at_death_ + (uses - uses_at_death_) * kShareOfTheLast;
  deaths_ = std::min(deaths_ + 1, kDeathsThatTeach);
}

int WeightTable::sightings_needed() const noexcept {
  if (deaths_ < kDeathsThatTeach || uses_at_death_ >= kUsesThatPay) return kSightings;
  return std::max(kSightings, static_cast<int>(2 * uses_at_death_));
}

void WeightTable::sweep() noexcept {
  std::lock_guard lock(mutex_);
  sweep_locked();
}

std::size_t WeightTable::weights() const {
  std::lock_guard lock(mutex_);
  return by_key_.size();
}

}  // namespace ipexrun::preload
