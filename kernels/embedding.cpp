// Cuts the bags of a call among the workers. Compiled for the base instruction set.
#include "kernels/embedding.h"

#include "kernels/choose.h"
#include "kernels/dispatch.h"
#include "kernels/share.h"

namespace ipexrun::kernels {
namespace {

/// Below this many elements a call is shorter than waking a second worker.
constexpr std::int64_t kSerialElements = 1 << 14;

std::int64_t offset(const EmbeddingBagArgs& args, std::int64_t i) {
  return args.wide ? static_cast<const std::int64_t*>(args.offsets)[i] : static_cast<const std::int32_t*>(args.offsets)[i];
}

}  // namespace

bool embedding_bag(const EmbeddingBagArgs& args, const Parallel& parallel, IsaSet isa) {
  if (args.bags <= 0) return args.count == 0;
  if (offset(args, 0) != 0 || (args.has_end && offset(args, args.bags) != args.count)) return false;
  const EmbeddingVariant& variant = choose(embedding_variants(), isa);
  const std::int64_t parts = parts_of(args.bags, args.columns > kSerialElements / (args.count + args.bags), parallel);
  return share(parts, 0, parallel, [&](std::int64_t part, void*) {
    return variant.bags(args, begin_of(args.bags, part, parts), begin_of(args.bags, part + 1, parts));
  });
}

bool embedding_bag_supported(IsaSet isa) { return choose(embedding_variants(), isa).needs != 0; }

const char* embedding_bag_variant(IsaSet isa) { return choose(embedding_variants(), isa).name; }

}  // namespace ipexrun::kernels
