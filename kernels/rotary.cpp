// Shares the rows among the workers, in the order of memory. Compiled for the base instruction set.
#include "kernels/rotary.h"

#include "kernels/choose.h"
#include "kernels/dispatch.h"
#include "kernels/share.h"

namespace ipexrun::kernels {
namespace {

/// Below this many elements a call is shorter than waking a second worker.
constexpr std::int64_t kSerialElements = 1 << 15;

}  // namespace

bool rotary(const RotaryArgs& args, const Parallel& parallel, IsaSet isa) {
  if (args.rotated < 0 || args.rotated > args.depth || args.rotated % 2 != 0) return false;
  if (args.batch <= 0 || args.positions <= 0 || args.heads <= 0 || args.depth == 0) return true;
  const RotaryVariant& variant = choose(rotary_variants(), isa);
  const bool heads_outside = args.from_strides.head > args.from_strides.position;
  const std::int64_t rows = args.batch * args.positions * args.heads;
  const std::int64_t parts = parts_of(rows, args.depth > kSerialElements / rows, parallel);
  return share(parts, 0, parallel, [&](std::int64_t part, void*) {
    variant.run(args, heads_outside, begin_of(rows, part, parts), begin_of(rows, part + 1, parts));
    return true;
  });
}

bool rotary_supported(IsaSet isa) { return choose(rotary_variants(), isa).needs != 0; }

const char* rotary_variant(IsaSet isa) { return choose(rotary_variants(), isa).name; }

}  // namespace ipexrun::kernels
