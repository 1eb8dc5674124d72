// Packs the weight, chooses the variant, splits tiles and channels among the workers and gives each its scratch. Compiled for the base instruction set.
#include "kernels/winograd.h"

#include <algorithm>
#include <atomic>
#include <limits>

#include "kernels/choose.h"
#include "kernels/grid.h"
#include "kernels/ref/winograd.h"
#include "kernels/scratch.h"
#include "kernels/simd/winograd.h"

namespace ipexrun::kernels {
namespace {

// A variant that the compiler could not build is not in it (IPEXRUN_KERNELS_* from CMakeLists.txt).
constexpr WinogradVariant kWinograd[] = {
#ifdef IPEXRUN_KERNELS_AVX512
    {"avx512", kLevelAvx512, 16, avx512::winograd_scratch_bytes, avx512::winograd},
#endif
#ifdef IPEXRUN_KERNELS_AVX2
    {"avx2", kLevelAvx2, 8, avx2::winograd_scratch_bytes, avx2::winograd},
#endif
    {"ref", 0, 1, ref::winograd_scratch_bytes, ref::winograd},
};

const WinogradVariant& variant_of(std::int64_t channels, IsaSet isa) {
  const WinogradVariants table = winograd_variants();
  std::size_t i = 0;
  while (i + 1 < table.count && (!isa_has(isa, table.first[i].needs) || channels % table.first[i].channels_at_once != 0)) ++i;
  return table.first[i];
}

struct PackJob {
  const float* weight;
  const std::int64_t* strides;
  std::int64_t channels;
  std::int64_t n;
  float* to;
};

/// Element (i, j) of G g G'.
void transform(const double (&g)[3][3], double (&to)[4][4]) {
  const auto widen = [](double a, double b, double c, double (&out)[4]) {
    out[0] = a;
    out[1] = (a + b + c) / 2;
    out[2] = (a - b + c) / 2;
    out[3] = c;
  };
  double down[3][4];
  for (int x = 0; x < 3; ++x) widen(g[0][x], g[1][x], g[2][x], down[x]);
  for (int y = 0; y < 4; ++y) widen(down[0][y], down[1][y], down[2][y], to[y]);
}

void pack_task(void* arg, int panel) {
  const auto& job = *static_cast<const PackJob*>(arg);
  const std::int64_t place = winograd_place_bytes(job.channels) / 4;
  float* to = job.to + panel * 16 * place;
  for (std::int64_t c = 0; c < job.channels; ++c) {
    for (std::int64_t column = 0; column < kPanelColumns; ++column) {
      const std::int64_t n = panel * kPanelColumns + column;
      double transformed[4][4] = {};
      if (n < job.n) {
        double g[3][3];
        const float* from = job.weight + n * job.strides[0] + c * job.strides[1];
        for (int y = 0; y < 3; ++y) {
          for (int x = 0; x < 3; ++x) g[y][x] = static_cast<double>(from[y * job.strides[2] + x * job.strides[3]]);
        }
        transform(g, transformed);
      }
      for (int i = 0; i < 16; ++i) to[i * place + c * kPanelColumns + column] = static_cast<float>(transformed[i / 4][i % 4]);
    }
  }
}

struct Job {
  const WinogradArgs* args;
  const WinogradVariant* variant;
  Grid grid;
  std::int64_t tiles;
  std::atomic<bool> failed{false};
  std::atomic<bool> refused{false};
};

void task(void* arg, int index) {
  auto* job = static_cast<Job*>(arg);
  const LinearBlock block = block_of(job->grid, index, job->tiles, job->args->n);
  const std::size_t bytes = job->variant->scratch_bytes(*job->args, block);
  void* scratch = bytes == 0 ? nullptr : thread_scratch(bytes);
  if (scratch == nullptr && bytes != 0) {
    job->failed.store(true, std::memory_order_relaxed);  // run() of Parallel orders it before our read
    return;
  }
  if (!job->variant->run(*job->args, block, scratch)) job->refused.store(true, std::memory_order_relaxed);
  if (bytes != 0) release_large_scratch();
}

}  // namespace

WinogradVariants winograd_variants() { return {kWinograd, sizeof(kWinograd) / sizeof(kWinograd[0])}; }

std::size_t packed_winograd_bytes(std::int64_t channels, std::int64_t n) {
  constexpr std::int64_t kLargest = std::numeric_limits<int>::max();
  if (channels <= 0 || n <= 0 || channels > kLargest || n > kLargest) return 0;
  return static_cast<std::size_t>(panels_of(n)) * 16 * static_cast<std::size_t>(winograd_place_bytes(channels));
}

void pack_winograd(const float* weight, const std::int64_t strides[4], std::int64_t channels, std::int64_t n, void* to, const Parallel& parallel) {
  PackJob job{weight, strides, channels, n, static_cast<float*>(to)};
  parallel(static_cast<int>(panels_of(n)), pack_task, &job);
}

bool winograd_supported(std::int64_t channels, std::int64_t n, IsaSet isa) {
  return packed_winograd_bytes(channels, n) != 0 && variant_of(channels, isa).needs != 0;
}

const char* winograd_variant(std::int64_t channels, IsaSet isa) { return variant_of(channels, isa).name; }

WinogradResult winograd(const WinogradArgs& args, const Parallel& parallel, IsaSet isa) {
  const std::int64_t tiles = args.images * winograd_tiles(args.out[0]) * winograd_tiles(args.out[1]);
  if (tiles <= 0 || args.n <= 0) return WinogradResult::kDone;
  const int workers = workers_for(16 * tiles, args.n, std::max<std::int64_t>(args.channels, 1), parallel);
  Job job{&args, &variant_of(args.channels, isa), choose_grid(tiles, args.n, workers), tiles};
  parallel(static_cast<int>(job.grid.rows * job.grid.panels), task, &job);
  if (job.failed.load(std::memory_order_relaxed)) return WinogradResult::kNoMemory;
  return job.refused.load(std::memory_order_relaxed) ? WinogradResult::kNotFinite : WinogradResult::kDone;
}

}  // namespace ipexrun::kernels
