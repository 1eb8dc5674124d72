// Shares pieces of rows among the workers. Compiled for the base instruction set.
#include "kernels/gated.h"

#include "kernels/choose.h"
#include "kernels/dispatch.h"
#include "kernels/packed.h"
#include "kernels/share.h"

namespace ipexrun::kernels {
namespace {

/// Elements of a row that one worker takes.
constexpr std::int64_t kPiece = 1024;
/// Below this many elements a call is shorter than waking a second worker.
constexpr std::int64_t kSerialElements = 1 << 15;

}  // namespace

void gated(const GatedArgs& args, const Parallel& parallel, IsaSet isa) {
  if (args.rows <= 0 || args.columns <= 0) return;
  const GatedVariant& variant = choose(gated_variants(), isa);
  GatedArgs all = args;
  if (args.rows == 1 || (args.a_stride == args.columns && args.b_stride == args.columns && args.to_stride == args.columns)) {
    all.columns = args.rows * args.columns;
    all.rows = 1;
  }
  const std::int64_t pieces = ceil_div(all.columns, kPiece);
  const std::int64_t parts = parts_of(all.rows * pieces, all.columns > kSerialElements / all.rows, parallel);
  share(parts, 0, parallel, [&](std::int64_t part, void*) {
    const std::int64_t end = begin_of(all.rows * pieces, part + 1, parts);
    for (std::int64_t piece = begin_of(all.rows * pieces, part, parts); piece < end;) {
      const std::int64_t row = piece / pieces;
      const std::int64_t next = end < (row + 1) * pieces ? end : (row + 1) * pieces;
      const std::int64_t first = piece % pieces * kPiece;
      const std::int64_t last = (next - row * pieces) * kPiece;
      const auto size = bytes_of(all.dtype);
      GatedArgs slice = all;
      slice.a = static_cast<const char*>(all.a) + (row * all.a_stride + first) * size;
      slice.b = static_cast<const char*>(all.b) + (row * all.b_stride + first) * size;
      slice.to = static_cast<char*>(all.to) + (row * all.to_stride + first) * size;
      slice.columns = (last < all.columns ? last : all.columns) - first;
      variant.run(slice);
      piece = next;
    }
    return true;
  });
}

bool gated_supported(IsaSet isa) { return choose(gated_variants(), isa).needs != 0; }

const char* gated_variant(IsaSet isa) { return choose(gated_variants(), isa).name; }

}  // namespace ipexrun::kernels
