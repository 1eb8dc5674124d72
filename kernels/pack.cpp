// pack_b: any strided B to the layout of packed.h.
#include <cstring>
#include <limits>

#include "kernels/bf16.h"
#include "kernels/linear.h"
#include "kernels/packed.h"

namespace ipexrun::kernels {
namespace {

std::uint16_t load(const float& value) { return bf16_from_f32(value); }
std::uint16_t load(const std::uint16_t& value) { return value; }

/// One panel. The loop over columns is outermost so that the usual case, stride_k = 1, reads each row of the weight in order.
template <typename T>
void pack_panel(const MatrixB& b, std::int64_t panel, std::uint16_t* to) {
  const auto* from = static_cast<const T*>(b.data);
  const std::int64_t first = panel * kPanelColumns;
  const std::int64_t columns = b.n - first < kPanelColumns ? b.n - first : kPanelColumns;
  if (columns < kPanelColumns || b.k % kStepK != 0) {
    std::memset(to, 0, static_cast<std::size_t>(steps_of(b.k) * kStepBytes));
  }
  for (std::int64_t n = 0; n < columns; ++n) {
    const T* column = from + (first + n) * b.stride_n;
    for (std::int64_t k = 0; k < b.k; ++k) to[packed_offset(k, n)] = load(column[k * b.stride_k]);
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
