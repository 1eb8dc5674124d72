// Lays out the scratch and shares the rows of the output among the workers. Compiled for the base instruction set.
#include "kernels/pool.h"

#include <algorithm>

#include "kernels/choose.h"
#include "kernels/dispatch.h"
#include "kernels/packed.h"
#include "kernels/share.h"

namespace ipexrun::kernels {
namespace {

/// Below this many elements read a call is shorter than waking a second worker.
constexpr std::int64_t kSerialElements = 1 << 14;

/// A stride or window about as wide as an image wants many times the image, of each worker.
constexpr std::size_t kMostScratchBytes = std::size_t{64} << 20;

using Run = void (*)(const PoolArgs& args, const PoolPlan& plan, std::int64_t row_begin, std::int64_t row_end, void* scratch);

std::int64_t padded(std::int64_t count) { return ceil_div(count, kPoolPadding) * kPoolPadding; }

/// `count` elements of `size` bytes after what is there; returns where.
std::size_t reserve(PoolPlan* plan, std::int64_t count, std::size_t size) {
  const std::size_t at = plan->bytes;
  plan->bytes = (at + static_cast<std::size_t>(count) * size + 63) / 64 * 64;
  return at;
}

PoolPlan plan_of_windows(const PoolArgs& args) {
  const PoolWindow& across = args.across;
  PoolPlan plan;
  plan.span = (args.down.size - 1) * args.down.dilation + 1;
  plan.columns = padded(args.out_width);
  const std::int64_t reached = plan.columns + (across.size - 1) * across.dilation / across.stride;
  plan.pitch = padded(std::max(reached, ceil_div(args.width + across.pad, across.stride)) + 1);
  plan.row = plan.pitch * across.stride;
  plan.rows = reserve(&plan, plan.span * plan.row, sizeof(float));
  plan.tags = reserve(&plan, plan.span, sizeof(std::int64_t));
  plan.taps = reserve(&plan, across.size, sizeof(std::int64_t));
  plan.first = reserve(&plan, plan.columns, sizeof(std::int32_t));
  plan.column = reserve(&plan, plan.columns, sizeof(std::int32_t));
  plan.result = reserve(&plan, plan.columns, sizeof(float));
  return plan;
}

PoolPlan plan_of_adaptive(const PoolArgs& args) {
  PoolPlan plan;
  plan.row = padded(args.width);
  plan.columns = padded(args.out_width);
  plan.rows = reserve(&plan, plan.row, sizeof(float));
  plan.first = reserve(&plan, plan.columns, sizeof(std::int32_t));
  plan.column = reserve(&plan, plan.columns, sizeof(std::int32_t));
  return plan;
}

bool share_rows(const PoolArgs& args, const PoolPlan& plan, Run run, const Parallel& parallel) {
  const std::int64_t rows = args.planes * args.out_height;
  if (rows <= 0 || args.out_width <= 0) return true;
  if (plan.bytes > kMostScratchBytes) return false;
  const std::int64_t parts = parts_of(rows, args.planes * args.height * args.width > kSerialElements, parallel);
  return share(parts, plan.bytes, parallel, [&](std::int64_t part, void* scratch) {
    run(args, plan, begin_of(rows, part, parts), begin_of(rows, part + 1, parts), scratch);
    return true;
  });
}

}  // namespace

bool max_pool(const PoolArgs& args, const Parallel& parallel, IsaSet isa) {
  return share_rows(args, plan_of_windows(args), choose(pool_variants(), isa).max, parallel);
}

bool average_pool(const PoolArgs& args, const Parallel& parallel, IsaSet isa) {
  return share_rows(args, plan_of_windows(args), choose(pool_variants(), isa).average, parallel);
}

bool adaptive_average_pool(const PoolArgs& args, const Parallel& parallel, IsaSet isa) {
  return share_rows(args, plan_of_adaptive(args), choose(pool_variants(), isa).adaptive, parallel);
}

bool pool_supported(IsaSet isa) { return choose(pool_variants(), isa).needs != 0; }

const char* pool_variant(IsaSet isa) { return choose(pool_variants(), isa).name; }

}  // namespace ipexrun::kernels
