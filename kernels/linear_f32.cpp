// Packs B, chooses the variant, splits C among the workers and gives each its scratch. Compiled for the base instruction set.
#include "kernels/linear_f32.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/choose.h"
#include "kernels/linear_f32_variants.h"
#include "kernels/shares.h"

namespace ipexrun::kernels {
namespace {

const LinearF32Variant& variant_of(const LinearF32Args& args, IsaSet isa) {
  LinearF32Variants table = linear_f32_variants(args.half);
  if (args.k <= 0) return table.first[table.count - 1];
  for (; table.first->parts && !args.parts; ++table.first) --table.count;
  return choose(table, isa);
}

struct PackJob {
  const MatrixF32* b;
  char* to;
  const ReorderVariant* transpose;
};

void pack_task(void* arg, int panel) {
  const auto* job = static_cast<const PackJob*>(arg);
  const MatrixF32& b = *job->b;
  const std::int64_t first = panel * kPanelColumns;
  const std::int64_t columns = std::min(b.n - first, kPanelColumns);
  auto* to = reinterpret_cast<float*>(job->to + panel * panel_bytes_f32(b.k, false));
  if (columns < kPanelColumns) std::memset(to, 0, static_cast<std::size_t>(panel_bytes_f32(b.k, false)));
  const float* from = static_cast<const float*>(b.data) + first * b.stride_n;
  if (b.stride_k == 1 && columns > 1) {
    job->transpose->run({from, b.stride_n, to, kPanelColumns, columns, b.k, DType::kF32, DType::kF32});
    return;
  }
  for (std::int64_t k = 0; k < b.k; ++k, to += kPanelColumns, from += b.stride_k) {
    if (b.stride_n == 1) {
      std::memcpy(to, from, static_cast<std::size_t>(columns) * 4);
    } else {
      for (std::int64_t n = 0; n < columns; ++n) to[n] = from[n * b.stride_n];
    }
  }
}

}  // namespace

std::size_t packed_f32_bytes(std::int64_t k, std::int64_t n, bool half) {
  constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max() / 4;
  if (k <= 0 || n <= 0 || k > kLargest / (4 * kPanelColumns) || n > std::numeric_limits<int>::max()) return 0;
  if (panel_bytes_f32(k, half) > kLargest / panels_of(n)) return 0;
  return static_cast<std::size_t>(panels_of(n) * panel_bytes_f32(k, half));
}

void pack_f32(const MatrixF32& b, void* to, const Parallel& parallel, IsaSet isa) {
  if (b.k <= 0 || b.n <= 0) return;
  if (b.half) {  // pack_b moves 16 bits as they are
    pack_b({b.data, DType::kBf16, b.k, b.n, b.stride_k, b.stride_n}, to, parallel, isa);
    return;
  }
  PackJob job{&b, static_cast<char*>(to), &choose(reorder_variants(), isa)};
  parallel(static_cast<int>(panels_of(b.n)), pack_task, &job);
}

bool linear_f32_supported(const LinearF32Args& args, IsaSet isa) {
  return args.m > 0 && packed_f32_bytes(args.k, args.n, args.half) != 0 && variant_of(args, isa).needs != 0;
}

bool linear_f32_has_parts(const LinearF32Args& args, IsaSet isa) {
  constexpr std::int64_t kRows = 32;  // that tiles take at once
  LinearF32Args with = args;
  with.parts = true;
  return args.m >= kRows && args.n >= kPanelColumns && args.k >= kStepK && variant_of(with, isa).parts;
}

const char* linear_f32_variant(const LinearF32Args& args, IsaSet isa) { return variant_of(args, isa).name; }

bool linear_f32(const LinearF32Args& args, const Parallel& parallel, IsaSet isa) {
  if (args.m <= 0 || args.n <= 0) return true;
  const LinearF32Variant& variant = variant_of(args, isa);
  const int workers = workers_for(args.m, args.n, args.k, parallel);
  const GridCosts& costs = args.half ? kGridCostsBf16 : variant.parts ? kGridCostsParts : kGridCostsF32;
  const Shares shares = shares_of(args.m, args.n, steps_of(args.k), workers, costs);
  return run_blocks(args, variant, shares, parallel);
}

}  // namespace ipexrun::kernels
