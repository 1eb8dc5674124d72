// Counters of the caching allocator. Three of each: of everything, of the small pool, of the large pool.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace ipexrun::xpu {

struct Stat {
  std::int64_t current = 0;
  std::int64_t peak = 0;
  std::int64_t allocated = 0;  ///< sum of all increases
  std::int64_t freed = 0;      ///< sum of all decreases

  void increase(std::int64_t amount) {
    current += amount;
    peak = std::max(peak, current);
    allocated += amount;
  }
  void decrease(std::int64_t amount) {
    current -= amount;
    freed += amount;
  }
  void reset_peak() { peak = current; }
  void reset_accumulated() { allocated = freed = 0; }
};

enum class PoolKind : std::size_t { kAll = 0, kSmall = 1, kLarge = 2 };

struct StatArray {
  std::array<Stat, 3> of;

  void increase(PoolKind pool, std::int64_t amount) {
    of[0].increase(amount);
    of[static_cast<std::size_t>(pool)].increase(amount);
  }
  void decrease(PoolKind pool, std::int64_t amount) {
    of[0].decrease(amount);
    of[static_cast<std::size_t>(pool)].decrease(amount);
  }
  [[nodiscard]] std::int64_t current() const { return of[0].current; }
};

/// Bytes, and numbers of blocks or segments. "active": allocated, or freed while another stream still uses it. "inactive split": cached
/// pieces of a segment of which another piece is in use.
struct MemoryStats {
  StatArray allocation, segment, active, inactive_split;
  StatArray allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes;
  StatArray requested_bytes;           ///< as the caller asked, before rounding
  std::int64_t num_alloc_retries = 0;  ///< the driver had no memory: the cache was emptied and it was asked again
  std::int64_t num_ooms = 0;
  std::int64_t num_device_alloc = 0;
  std::int64_t num_device_free = 0;
  std::int64_t num_sync_all_streams = 0;

  template <typename Function>
  void each(Function&& function) {
    for (StatArray* array : {&allocation, &segment, &active, &inactive_split, &allocated_bytes, &reserved_bytes, &active_bytes,
                             &inactive_split_bytes, &requested_bytes}) {
      for (Stat& stat : array->of) function(stat);
    }
  }
};

}  // namespace ipexrun::xpu
