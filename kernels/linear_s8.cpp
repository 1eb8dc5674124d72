// Packs B, chooses the variant, says what belongs to the columns and splits C among the workers. Compiled for the base instruction set.
#include "kernels/linear_s8.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

#include "kernels/choose.h"
#include "kernels/grid.h"
#include "kernels/linear_s8_variants.h"
#include "kernels/scratch.h"

namespace ipexrun::kernels {
namespace {

std::int64_t panel_bytes(std::int64_t k) { return steps_of_s8(k) * kStepBytesS8; }

/// Of all columns of a packed B.
const std::int32_t* column_sums(const void* packed, std::int64_t k, std::int64_t n) {
  return reinterpret_cast<const std::int32_t*>(static_cast<const char*>(packed) + panels_of(n) * panel_bytes(k));
}

struct PackJob {
  const MatrixS8* b;
  std::int8_t* to;
};

void pack_task(void* arg, int panel) {
  const auto* job = static_cast<const PackJob*>(arg);
  const MatrixS8& b = *job->b;
  std::int8_t* to = job->to + panel * panel_bytes(b.k);
  const std::int64_t first = panel * kPanelColumns;
  const std::int64_t columns = std::min(b.n - first, kPanelColumns);
  const std::int8_t* from = b.data + first * b.stride_n;
  std::int32_t sums[kPanelColumns] = {};
  if (columns < kPanelColumns) std::memset(to, 0, static_cast<std::size_t>(panel_bytes(b.k)));
  for (std::int64_t k = 0; k < b.k; k += kStepKS8) {
    const std::int64_t depth = std::min(b.k - k, kStepKS8);
    std::int8_t* step = to + k / kStepKS8 * kStepBytesS8;
    if (depth < kStepKS8) std::memset(step, 0, kStepBytesS8);
    if (b.stride_k == 1) {
      for (std::int64_t n = 0; n < columns; ++n) {
        const std::int8_t* column = from + n * b.stride_n + k;
        std::int32_t sum = 0;
        for (std::int64_t i = 0; i < depth; ++i) sum += column[i];
        sums[n] += sum;
        std::int64_t i = 0;
        for (; i + 4 <= depth; i += 4) std::memcpy(step + packed_offset_s8(i, n), column + i, 4);
        for (; i < depth; ++i) step[packed_offset_s8(i, n)] = column[i];
      }
    } else {
      for (std::int64_t i = 0; i < depth; ++i) {
        for (std::int64_t n = 0; n < columns; ++n) {
          const std::int8_t value = from[(k + i) * b.stride_k + n * b.stride_n];
          sums[n] += value;
          step[packed_offset_s8(i, n)] = value;
        }
      }
    }
  }
  std::memcpy(job->to + panels_of(b.n) * panel_bytes(b.k) + first * 4, sums, sizeof(sums));
}

struct Job {
  const LinearS8Args* args;
  const LinearS8Variant* variant;
  Grid grid;
  std::atomic<bool> failed{false};
};

void describe_panel(const LinearS8Args& args, std::int64_t zero, std::int64_t panel, PanelS8* to) {
  const std::int64_t first = panel * kPanelColumns;
  const std::int64_t columns = std::min(args.n - first, kPanelColumns);
  if (args.k <= 0) zero = 0;  // there is no packed B
  if (columns < kPanelColumns || zero == 0) std::memset(to, 0, sizeof(*to));
  if (zero != 0) {
    const std::int32_t* sums = column_sums(args.packed_b, args.k, args.n) + first;
    for (std::int64_t n = 0; n < kPanelColumns; ++n)
      to->start[n] = static_cast<std::int32_t>(static_cast<std::uint32_t>(-zero) * static_cast<std::uint32_t>(sums[n]));
  }
  if (args.c_type == LinearS8Output::kI32) return;
  const auto bytes = static_cast<std::size_t>(columns) * sizeof(float);
  if (args.b_scale != nullptr && args.b_scale_per_column) {
    std::memcpy(to->scale, args.b_scale + first, bytes);
  } else {
    std::fill_n(to->scale, columns, args.b_scale != nullptr ? *args.b_scale : 1.0f);
  }
  if (args.bias != nullptr) {
    std::memcpy(to->bias, args.bias + first, bytes);
  } else {
    std::memset(to->bias, 0, sizeof(to->bias));
  }
}

void task(void* arg, int index) {
  auto* job = static_cast<Job*>(arg);
  const LinearS8Args& args = *job->args;
  const LinearBlock block = block_of(job->grid, index, args.m, args.n);
  const auto panels_bytes = static_cast<std::size_t>(block.panel_end - block.panel_begin) * sizeof(PanelS8);
  void* scratch = thread_scratch(panels_bytes + job->variant->scratch_bytes(args, block));
  if (scratch == nullptr) {
    job->failed.store(true, std::memory_order_relaxed);  // run() of Parallel orders it before our read
    return;
  }
  auto* panels = static_cast<PanelS8*>(scratch);
  const std::int64_t zero = args.a_zero + (args.a_signed && job->variant->shifts ? 128 : 0);
  for (std::int64_t panel = block.panel_begin; panel < block.panel_end; ++panel)
    describe_panel(args, zero, panel, panels + (panel - block.panel_begin));
  job->variant->run(args, block, panels, static_cast<char*>(scratch) + panels_bytes);
  release_large_scratch();
}

/// Without a K there is nothing to multiply, and no packed B: the reference does what is left.
const LinearS8Variant& variant_of(const LinearS8Args& args, IsaSet isa) {
  const LinearS8Variants table = linear_s8_variants();
  return args.k > 0 ? choose(table, isa) : table.first[table.count - 1];
}

}  // namespace

std::size_t packed_s8_bytes(std::int64_t k, std::int64_t n) {
  constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max() / 4;
  if (k <= 0 || n <= 0 || k > kLargest || n > std::numeric_limits<int>::max()) return 0;
  const std::int64_t panels = panels_of(n);
  if (steps_of_s8(k) > kLargest / kStepBytesS8 / panels) return 0;
  return static_cast<std::size_t>(panels * (panel_bytes(k) + kPanelColumns * 4));
}

void pack_s8(const MatrixS8& b, void* to, const Parallel& parallel) {
  if (b.k <= 0 || b.n <= 0) return;
  PackJob job{&b, static_cast<std::int8_t*>(to)};
  parallel(static_cast<int>(panels_of(b.n)), pack_task, &job);
}

bool linear_s8_supported(const LinearS8Args& args, IsaSet isa) {
  return args.m > 0 && packed_s8_bytes(args.k, args.n) != 0 && variant_of(args, isa).native;
}

const char* linear_s8_variant(const LinearS8Args& args, IsaSet isa) { return variant_of(args, isa).name; }

bool linear_s8(const LinearS8Args& args, const Parallel& parallel, IsaSet isa) {
  if (args.m <= 0 || args.n <= 0) return true;
  const LinearS8Variant& variant = variant_of(args, isa);
  constexpr GridCosts costs{.rows = 1, .panel = 4, .rows_of_equal = false};  // of bytes: those of linear.h were not measured for them
  Job job{&args, &variant, choose_grid(args.m, args.n, workers_for(args.m, args.n, args.k, parallel), costs)};
  parallel(static_cast<int>(job.grid.rows * job.grid.panels), task, &job);
  return !job.failed.load(std::memory_order_relaxed);
}

}  // namespace ipexrun::kernels
