// AMX tiles in memory, with the names of tile.h: kernels that multiply tiles are tested on CPUs that have none (tests/unit/kernels,
// "software tiles"). What a CPU answers with a fault ends the process here: tiles that were not configured, shapes that do not fit.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace ipexrun::kernels::amx {

struct SoftwareTiles {
  static constexpr int kCount = 8;
  static constexpr int kRows = 16;
  static constexpr int kRowBytes = 64;

  bool configured = false;
  int rows[kCount] = {};
  int row_bytes[kCount] = {};
  alignas(64) char data[kCount][kRows][kRowBytes] = {};
};

static inline SoftwareTiles& software_tiles() {
  static thread_local SoftwareTiles tiles;
  return tiles;
}

static inline void tile_expect(bool held, const char* what) {
  if (held) return;
  std::fprintf(stderr, "software tiles: %s\n", what);
  std::abort();
}

static inline SoftwareTiles& configured_tiles() {
  SoftwareTiles& tiles = software_tiles();
  tile_expect(tiles.configured, "used before they were configured");
  return tiles;
}

static inline void tile_configure(const TileConfig& config) {
  tile_expect(config.palette == 1 && config.start_row == 0, "only palette 1, from its first row on");
  SoftwareTiles& tiles = software_tiles();
  tiles.configured = true;
  for (int tile = 0; tile < SoftwareTiles::kCount; ++tile) {
    tiles.rows[tile] = config.rows[tile];
    tiles.row_bytes[tile] = config.bytes_per_row[tile];
    tile_expect(tiles.rows[tile] <= SoftwareTiles::kRows && tiles.row_bytes[tile] <= SoftwareTiles::kRowBytes, "larger than a tile");
  }
  std::memset(tiles.data, 0, sizeof tiles.data);
}

static inline void tile_release() { software_tiles().configured = false; }

template <int kTile>
static inline void tile_zero() {
  std::memset(configured_tiles().data[kTile], 0, sizeof configured_tiles().data[kTile]);
}

template <int kTile>
static inline void tile_load(const void* from, std::int64_t stride_bytes) {
  SoftwareTiles& tiles = configured_tiles();
  std::memset(tiles.data[kTile], 0, sizeof tiles.data[kTile]);
  for (int row = 0; row < tiles.rows[kTile]; ++row) {
    std::memcpy(tiles.data[kTile][row], static_cast<const char*>(from) + row * stride_bytes,
                static_cast<std::size_t>(tiles.row_bytes[kTile]));
  }
}

template <int kTile>
static inline void tile_stream(const void* from, std::int64_t stride_bytes) {
  tile_load<kTile>(from, stride_bytes);
}

template <int kTile>
static inline void tile_store(void* to, std::int64_t stride_bytes) {
  SoftwareTiles& tiles = configured_tiles();
  for (int row = 0; row < tiles.rows[kTile]; ++row) {
    std::memcpy(static_cast<char*>(to) + row * stride_bytes, tiles.data[kTile][row], static_cast<std::size_t>(tiles.row_bytes[kTile]));
  }
}

static inline void tile_expect_fit(const SoftwareTiles& tiles, int c, int a, int b) {
  tile_expect(c != a && c != b && a != b, "one tile twice in a product");
  tile_expect(tiles.rows[c] == tiles.rows[a] && tiles.row_bytes[c] == tiles.row_bytes[b] && tiles.row_bytes[a] == 4 * tiles.rows[b],
              "shapes that do not fit");
}

#ifdef __AVX512BF16__
template <int kC, int kA, int kB>
static inline void tile_multiply() {
  SoftwareTiles& tiles = configured_tiles();
  tile_expect_fit(tiles, kC, kA, kB);
  for (int row = 0; row < tiles.rows[kC]; ++row) {
    __m512 sums = _mm512_setzero_ps();  // products of a row meet before they meet C, as in the manual's pseudocode
    for (int pair = 0; pair < tiles.rows[kB]; ++pair) {
      std::int32_t a = 0;
      std::memcpy(&a, tiles.data[kA][row] + 4 * pair, 4);
      sums = _mm512_dpbf16_ps(sums, (__m512bh)_mm512_set1_epi32(a), (__m512bh)_mm512_load_si512(tiles.data[kB][pair]));
    }
    _mm512_store_ps(tiles.data[kC][row], _mm512_add_ps(_mm512_load_ps(tiles.data[kC][row]), sums));
  }
}
#endif

template <bool kSigned, int kC, int kA, int kB>
static inline void tile_multiply_bytes() {
  SoftwareTiles& tiles = configured_tiles();
  tile_expect_fit(tiles, kC, kA, kB);
  for (int row = 0; row < tiles.rows[kC]; ++row) {
    for (int column = 0; 4 * column < tiles.row_bytes[kC]; ++column) {
      std::uint32_t sum = 0;
      std::memcpy(&sum, tiles.data[kC][row] + 4 * column, 4);
      for (int four = 0; four < tiles.rows[kB]; ++four) {
        for (int i = 0; i < 4; ++i) {
          const char a = tiles.data[kA][row][4 * four + i];
          const auto wide =
              kSigned ? static_cast<std::int32_t>(static_cast<signed char>(a)) : static_cast<std::int32_t>(static_cast<unsigned char>(a));
          sum += static_cast<std::uint32_t>(wide * static_cast<signed char>(tiles.data[kB][four][4 * column + i]));
        }
      }
      std::memcpy(tiles.data[kC][row] + 4 * column, &sum, 4);
    }
  }
}

}  // namespace ipexrun::kernels::amx
