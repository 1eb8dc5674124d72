// Shares the rows of outputs of a call among the workers. Compiled for the base instruction set.
#include "kernels/pool_last.h"

#include "kernels/choose.h"
#include "kernels/pool_last_variants.h"
#include "kernels/share.h"

namespace ipexrun::kernels {
namespace {

/// Below this many elements of the input a call is shorter than waking a second worker.
constexpr std::int64_t kSerialElements = 1 << 16;

void share_items(const PoolLastArgs& args, void (*run)(const PoolLastArgs&, std::int64_t, std::int64_t), const Parallel& parallel) {
  const std::int64_t items = args.images * args.out_height * ceil_div(args.channels, kPoolLastChannels);
  if (items <= 0 || args.out_width <= 0) return;
  const std::int64_t parts = parts_of(items, args.images * args.channels * args.height * args.width > kSerialElements, parallel);
  share(parts, 0, parallel, [&](std::int64_t part, void* /*scratch*/) {
    run(args, begin_of(items, part, parts), begin_of(items, part + 1, parts));
    return true;
  });
}

}  // namespace

bool pool_last_supported(IsaSet isa) { return choose(pool_last_variants(), isa).needs != 0; }

void max_pool_last(const PoolLastArgs& args, const Parallel& parallel, IsaSet isa) {
  share_items(args, choose(pool_last_variants(), isa).max, parallel);
}

void average_pool_last(const PoolLastArgs& args, const Parallel& parallel, IsaSet isa) {
  share_items(args, choose(pool_last_variants(), isa).average, parallel);
}

const char* pool_last_variant(IsaSet isa) { return choose(pool_last_variants(), isa).name; }

}  // namespace ipexrun::kernels
