// Whether somebody else uses the other thread of this core at present. Internal linkage, see dispatch.h.
//
// What it decides: blocks of C in four tiles with two of A and two of B beside them, where a product needs one load, or halves of them in
// four registers (tile.h), where it needs one and a half. A core of one's own is up to a tenth faster with the former, one that is shared
// 1.7 times with the latter (docs/performance-kernels.md, "Tile registers"). Both add up in the same order, so the bits are the same.
// Method: both kinds of loop over tiles in L1, 16 products each, are timed against each other, about once in half a millisecond of a
// thread.
#pragma once

#include <immintrin.h>
#include <x86intrin.h>

#include <cstdint>

#include "kernels/amx/tile.h"

namespace ipexrun::kernels::amx {
namespace {

#ifdef IPEXRUN_SOFTWARE_TILES

/// Both, in turn.
inline bool core_is_shared() {
  static thread_local bool shared = false;
  return shared = !shared;
}

#else

inline std::uint64_t ticks() {
  _mm_lfence();  // what came before is over
  const std::uint64_t now = __rdtsc();
  _mm_lfence();
  return now;
}

template <typename Loop>
inline std::uint64_t ticks_of(const Loop& loop) {
  const std::uint64_t start = ticks();
  loop();
  return ticks() - start;
}

inline bool times_say_shared() {
  alignas(64) static constexpr char kTile[1024] = {};
  const auto few = [](int times) {
    for (int i = 0; i < times; ++i) {
      tile_load<6>(kTile, 64);
      tile_load<4>(kTile, 64);
      tile_multiply<0, 4, 6>();
      tile_load<4>(kTile, 64);
      tile_multiply<1, 4, 6>();
    }
  };
  const auto all = [](int times) {
    for (int i = 0; i < times; ++i) {
      tile_load<4>(kTile, 64);
      tile_load<6>(kTile, 64);
      tile_multiply<0, 4, 6>();
      tile_load<5>(kTile, 64);
      tile_multiply<2, 5, 6>();
      tile_load<7>(kTile, 64);
      tile_multiply<1, 4, 7>();
      tile_multiply<3, 5, 7>();
    }
  };
  tile_configure(whole_tiles());
  few(2);  // lines come into L1; then registers 2, 3, 5 and 7 are still empty
  const std::uint64_t of_few = ticks_of([&] { few(8); });
  all(1);
  const std::uint64_t of_all = ticks_of([&] { all(4); });
  tile_release();
  return of_all * 10 > of_few * 14;
}

/// Tiles must not be configured.
inline bool core_is_shared() {
  constexpr std::uint64_t kTicks = 1'000'000;
  struct Known {
    std::uint64_t since;
    bool shared;
  };
  static thread_local Known known{0, false};
  const std::uint64_t now = __rdtsc();
  if (now - known.since >= kTicks) known = {now, times_say_shared()};
  return known.shared;
}

#endif

}  // namespace
}  // namespace ipexrun::kernels::amx
