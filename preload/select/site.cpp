#include "preload/select/site.h"

#include <bit>

namespace ipexrun::preload {
namespace {

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
  return hash ^ (hash >> 29);
}

std::size_t hash_of(const SiteId& id) {
  std::uint64_t hash = mix(id.op, id.form);
  hash = mix(hash, static_cast<std::uint64_t>(id.threads));
  for (std::int64_t size : {id.batch, id.m, id.n, id.k}) hash = mix(hash, static_cast<std::uint64_t>(size));
  hash = mix(hash, id.detail);
  return static_cast<std::size_t>(hash ^ (hash >> 32));
}

}  // namespace

std::int64_t round_up_rows(std::int64_t m) { return m <= 1 ? 1 : static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(m))); }

std::uint32_t needed_candidates(const Site& site) noexcept {
  const bool exploring = site.state.load(std::memory_order_acquire) == SiteState::kExploring;
  std::uint32_t needed = 1u << site.choice.load(std::memory_order_relaxed);
  for (std::size_t i = site.next; exploring && i < site.candidates.size(); ++i) needed |= 1u << site.candidates[i];
  return needed;
}

void settle(Site& site, int choice, const Decision& decision, bool pinned) {
  site.pinned = pinned;
  site.best = choice;
  site.choice.store(choice, std::memory_order_relaxed);
  site.stock_ns.store(decision.stock_ns, std::memory_order_relaxed);
  site.choice_ns.store(decision.choice_ns, std::memory_order_relaxed);
  site.samples.store(decision.samples, std::memory_order_relaxed);
  site.reason.store(pinned ? "pinned" : "remembered", std::memory_order_relaxed);
  site.state.store(SiteState::kDecided, std::memory_order_release);
}

SiteTable::SiteTable() : slots_(kSlots) {}

SiteTable::~SiteTable() {
  for (auto& slot : slots_) delete slot.load();
}

Site* SiteTable::find(const SiteId& id) const noexcept {
  for (std::size_t at = hash_of(id), probes = 0; probes < kSlots; ++at, ++probes) {
    Site* site = slots_[at % kSlots].load(std::memory_order_acquire);
    if (site == nullptr || site->id == id) return site;
  }
  return nullptr;
}

Site* SiteTable::insert(std::unique_ptr<Site> site) noexcept {
  const int number = count_.fetch_add(1, std::memory_order_relaxed);
  if (number >= kMaxSites) {
    count_.fetch_sub(1, std::memory_order_relaxed);
    return nullptr;
  }
  site->number = static_cast<std::uint32_t>(number);
  for (std::size_t at = hash_of(site->id);; ++at) {
    auto& slot = slots_[at % kSlots];
    Site* seen = nullptr;
    if (slot.compare_exchange_strong(seen, site.get(), std::memory_order_acq_rel)) return site.release();
    if (seen->id == site->id) {
      // The number stays used: reusing it could give two sites the same one.
      return seen;
    }
  }
}

}  // namespace ipexrun::preload
