// Shares the rows of the output among the workers. Compiled for the base instruction set.
#include "kernels/resize.h"

#include "kernels/choose.h"
#include "kernels/dispatch.h"
#include "kernels/packed.h"
#include "kernels/share.h"

namespace ipexrun::kernels {
namespace {

/// Below this many elements written a call is shorter than waking a second worker.
constexpr std::int64_t kSerialElements = 1 << 14;

/// A row of the input with two vectors behind it, places relative to the vector where they begin, stretched rows, a row of the result.
std::size_t scratch_bytes(const ResizeArgs& args) {
  const std::int64_t row = ceil_div(args.across.size, kResizePadding) * kResizePadding + 2 * kResizePadding;
  return static_cast<std::size_t>(row + args.across.pitch * (args.across.taps + kMaxResizeTaps + 2)) * sizeof(float);
}

}  // namespace

bool resize(const ResizeArgs& args, const Parallel& parallel, IsaSet isa) {
  const std::int64_t rows = args.planes * args.down.outputs;
  if (rows <= 0 || args.across.outputs <= 0) return true;
  const ResizeVariant& variant = choose(resize_variants(), isa);
  const std::int64_t parts = parts_of(rows, rows * args.across.outputs > kSerialElements, parallel);
  return share(parts, scratch_bytes(args), parallel, [&](std::int64_t part, void* scratch) {
    variant.run(args, begin_of(rows, part, parts), begin_of(rows, part + 1, parts), scratch);
    return true;
  });
}

bool resize_supported(IsaSet isa) { return choose(resize_variants(), isa).needs != 0; }

const char* resize_variant(IsaSet isa) { return choose(resize_variants(), isa).name; }

}  // namespace ipexrun::kernels
