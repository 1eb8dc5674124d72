// C [rows, columns] = A B or C + A B for one block that the caches hold: A row-major in words, B packed in panels (attention_pack.h).
// Include after products_*.h.
#pragma once

#include <cstdint>

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

constexpr int kTileRows = 6;

/// `steps` words of K; B advances by V vectors a step. C is added last, so that the sum over all keys is one of partial sums.
template <int R, int V>
void tile(const float* a, std::int64_t lda, const float* b, std::int64_t steps, float* c, std::int64_t ldc, bool add) {
  Floats::Vector sums[R][V];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sums[r][v] = Floats::of_bits(Lanes::zero());
  }
  for (std::int64_t k = 0; k < steps; ++k) {
    Lanes::Vector operand[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) operand[v] = Lanes::load(b + v * Lanes::kCount);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sums[r][v] = Products::add(sums[r][v], a + r * lda + k, operand[v]);
    }
    b += V * Lanes::kCount;
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      float* to = c + r * ldc + v * Lanes::kCount;
      if (add) sums[r][v] = Floats::add(sums[r][v], Floats::of_bits(Lanes::load(to)));
      Lanes::store(to, Floats::bits_of(sums[r][v]));
    }
  }
}

using Tile = void (*)(const float* a, std::int64_t lda, const float* b, std::int64_t steps, float* c, std::int64_t ldc, bool add);

/// `vectors` as far as tiles are that wide: no wider ones are compiled.
constexpr int limited(int vectors) { return vectors < Products::kVectors ? vectors : Products::kVectors; }

template <int R>
struct Tiles {
  static constexpr Tile kOf[4] = {tile<R, limited(1)>, tile<R, limited(2)>, tile<R, limited(3)>, tile<R, limited(4)>};
};

/// rows 1 .. kTileRows, vectors 1 .. Products::kVectors
Tile tile_of(std::int64_t rows, std::int64_t vectors) {
  constexpr const Tile* kTiles[kTileRows] = {Tiles<1>::kOf, Tiles<2>::kOf, Tiles<3>::kOf, Tiles<4>::kOf, Tiles<5>::kOf, Tiles<6>::kOf};
  return kTiles[rows - 1][vectors - 1];
}

/// How many panels `vectors` make; panel p has the vectors [vectors * p / panels, vectors * (p + 1) / panels).
constexpr std::int64_t panels_of_vectors(std::int64_t vectors) { return (vectors + Products::kVectors - 1) / Products::kVectors; }

}  // namespace
}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
