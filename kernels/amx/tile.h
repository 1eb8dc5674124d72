// AMX tiles, as thin as the instructions. Internal linkage, see dispatch.h.
//
// Few registers in use at once, whatever a block of C wants, are twice as fast where the other thread of the core is busy. Then, it seems,
// half of the registers behind the eight names are that thread's, and none is left to rename to: each load waits for the products before
// it, each product for the load. On a core of one's own a product takes 16 cycles whatever is in use: loads hide behind it, sums of one
// register follow each other without a wait. Seen on Sapphire Rapids, ns a product in bf16, quiet and busy: 8 in use 7.0 and 28, 6: 7.0
// and 18.5, 4: 7.0 and 14.5 (docs/performance-kernels.md, "Tile registers"). Which names they have does not matter; loading the
// configuration empties all.
//
// Own wrappers instead of the compiler's: those of GCC 12 carry no "memory" clobber on tile loads, so a store that fills the source
// buffer may sink below the load.
#pragma once

#include <cstdint>

namespace ipexrun::kernels::amx {

/// Operand of LDTILECFG (Intel SDM vol. 1, 18.2).
struct alignas(64) TileConfig {
  std::uint8_t palette;
  std::uint8_t start_row;
  std::uint8_t reserved[14];
  std::uint16_t bytes_per_row[16];
  std::uint8_t rows[16];
};

/// All tiles whole: 16 rows of 64 bytes.
[[maybe_unused]] static constexpr TileConfig whole_tiles() {
  TileConfig config{};
  config.palette = 1;
  for (int tile = 0; tile < 8; ++tile) {
    config.bytes_per_row[tile] = 64;
    config.rows[tile] = 16;
  }
  return config;
}

}  // namespace ipexrun::kernels::amx

#ifdef IPEXRUN_SOFTWARE_TILES
#include "kernels/amx/software_tile.h"
#else

namespace ipexrun::kernels::amx {

static inline void tile_configure(const TileConfig& config) { __asm__ volatile("ldtilecfg %0" ::"m"(config) : "memory"); }

/// Must run before control returns to code that is not ours: live tiles make every context switch and signal frame 8 KiB heavier.
static inline void tile_release() { __asm__ volatile("tilerelease" ::: "memory"); }

template <int kTile>
static inline __attribute__((always_inline)) void tile_zero() {
  __asm__ volatile("tilezero %%tmm%c0" ::"i"(kTile));
}

template <int kTile>
static inline __attribute__((always_inline)) void tile_load(const void* from, std::int64_t stride_bytes) {
  __asm__ volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(kTile), "r"(from), "r"(stride_bytes) : "memory");
}

/// The same with a hint not to displace what L1 holds: for the operand that streams.
template <int kTile>
static inline __attribute__((always_inline)) void tile_stream(const void* from, std::int64_t stride_bytes) {
  __asm__ volatile("tileloaddt1 (%1,%2,1), %%tmm%c0" ::"i"(kTile), "r"(from), "r"(stride_bytes) : "memory");
}

template <int kTile>
static inline __attribute__((always_inline)) void tile_store(void* to, std::int64_t stride_bytes) {
  __asm__ volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(kTile), "r"(to), "r"(stride_bytes) : "memory");
}

/// kC += kA * kB, bf16 pairs into fp32.
template <int kC, int kA, int kB>
static inline __attribute__((always_inline)) void tile_multiply() {
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
}

/// kC += kA * kB, four bytes into int32: those of A signed or not, those of B signed. Wraps around.
template <bool kSigned, int kC, int kA, int kB>
static inline __attribute__((always_inline)) void tile_multiply_bytes() {
  if constexpr (kSigned) {
    __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
  } else {
    __asm__ volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
  }
}

}  // namespace ipexrun::kernels::amx

#endif
