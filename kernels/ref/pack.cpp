#include "kernels/ref/pack.h"

#include <algorithm>
#include <cstring>

#include "kernels/bf16.h"
#include "kernels/packed.h"

namespace ipexrun::kernels::ref {
namespace {

std::uint16_t load(const float& value) { return bf16_from_f32(value); }
std::uint16_t load(const std::uint16_t& value) { return value; }

/// One panel, tile by tile: a tile is assembled in a KiB that stays in L1 whichever way B lies in memory, and the inner loop follows
/// the smaller stride, so that each line of B is read in one go.
template <typename T>
void pack(const MatrixB& b, std::int64_t panel, std::uint16_t* to) {
  const std::int64_t first = panel * kPanelColumns;
  for (std::int64_t step = 0; step < steps_of(b.k); ++step) {
    const std::int64_t depth = std::min(b.k - step * kStepK, kStepK);
    for (std::int64_t column = first; column < first + kPanelColumns; column += kTileColumns, to += kTileElements) {
      const std::int64_t columns = std::clamp(b.n - column, std::int64_t{0}, kTileColumns);
      if (depth < kStepK || columns < kTileColumns) std::memset(to, 0, kTileElements * sizeof(*to));
      if (columns == 0) continue;
      const T* from = static_cast<const T*>(b.data) + step * kStepK * b.stride_k + column * b.stride_n;
      if (b.stride_k == 1) {
        for (std::int64_t n = 0; n < columns; ++n) {
          for (std::int64_t k = 0; k < depth; ++k) to[packed_offset(k, n)] = load(from[n * b.stride_n + k]);
        }
      } else {
        for (std::int64_t k = 0; k < depth; ++k) {
          for (std::int64_t n = 0; n < columns; ++n) to[packed_offset(k, n)] = load(from[k * b.stride_k + n * b.stride_n]);
        }
      }
    }
  }
}

}  // namespace

void pack_panel(const MatrixB& b, std::int64_t panel, std::uint16_t* to) {
  b.dtype == DType::kF32 ? pack<float>(b, panel, to) : pack<std::uint16_t>(b, panel, to);
}

}  // namespace ipexrun::kernels::ref
