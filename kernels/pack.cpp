// pack_b: any strided B to the layout of packed.h.
#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/bf16.h"
#include "kernels/linear.h"
#include "kernels/packed.h"

namespace ipexrun::kernels {
namespace {

std::uint16_t load(const float& value) { return bf16_from_f32(value); }
std::uint16_t load(const std::uint16_t& value) { return value; }

/// One panel, tile by tile: a tile is assembled in a KiB that stays in L1 whichever way B lies in memory, and the inner loop follows
/// the smaller stride, so that each line of B is read in one go.
template <typename T>
void pack_panel(const MatrixB& b, std::int64_t panel, std::uint16_t* to) {
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

struct Job {
  const MatrixB* b;
  std::uint16_t* to;
};

void pack_task(void* arg, int panel) {
  const auto* job = static_cast<const Job*>(arg);
  std::uint16_t* to = job->to + panel * steps_of(job->b->k) * kStepElements;
  if (job->b->dtype == DType::kF32) {
    pack_panel<float>(*job->b, panel, to);
  } else {
    pack_panel<std::uint16_t>(*job->b, panel, to);
  }
}

}  // namespace

std::size_t packed_b_bytes(std::int64_t k, std::int64_t n) {
  constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max() / 4;
  if (k < 0 || n < 0 || k > kLargest || n > std::numeric_limits<int>::max()) return 0;
  const std::int64_t panels = panels_of(n);
  const std::int64_t steps = steps_of(k);
  if (panels != 0 && steps > kLargest / kStepBytes / panels) return 0;
  return static_cast<std::size_t>(panels * steps * kStepBytes);
}

void pack_b(const MatrixB& b, void* to, const Parallel& parallel) {
  if (b.k <= 0 || b.n <= 0) return;
  Job job{&b, static_cast<std::uint16_t*>(to)};
  parallel(static_cast<int>(panels_of(b.n)), pack_task, &job);
}

}  // namespace ipexrun::kernels
