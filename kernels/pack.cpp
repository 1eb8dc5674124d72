// pack_b: any strided B to the layout of packed.h. Shares the panels among the workers; compiled for the base instruction set.
#include <limits>

#include "kernels/choose.h"
#include "kernels/dispatch.h"
#include "kernels/linear.h"
#include "kernels/packed.h"
#include "kernels/ref/pack.h"

namespace ipexrun::kernels {
namespace {

struct Job {
  const MatrixB* b;
  std::uint16_t* to;
  void (*panel)(const MatrixB& b, std::int64_t panel, std::uint16_t* to);
};

void pack_task(void* arg, int panel) {
  const auto* job = static_cast<const Job*>(arg);
  job->panel(*job->b, panel, job->to + panel * steps_of(job->b->k) * kStepElements);
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

void pack_b(const MatrixB& b, void* to, const Parallel& parallel, IsaSet isa) {
  if (b.k <= 0 || b.n <= 0) return;
  const bool adjacent = b.stride_k == 1 || b.stride_n == 1;
  Job job{&b, static_cast<std::uint16_t*>(to), adjacent ? choose(pack_variants(), isa).panel : ref::pack_panel};
  parallel(static_cast<int>(panels_of(b.n)), pack_task, &job);
}

}  // namespace ipexrun::kernels
