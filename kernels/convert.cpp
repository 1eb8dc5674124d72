// Shares the elements among the workers. Compiled for the base instruction set.
#include "kernels/convert.h"

#include <cstring>

#include "kernels/choose.h"
#include "kernels/dispatch.h"
#include "kernels/packed.h"
#include "kernels/share.h"

namespace ipexrun::kernels {
namespace {

/// Elements of which a worker takes a whole number: a cache line of 16 bits each.
constexpr std::int64_t kUnit = 32;
/// Below this many elements a call is shorter than waking a second worker.
constexpr std::int64_t kSerialElements = 1 << 16;

std::int64_t size_of(Format format) { return format == Format::kF32 ? 4 : 2; }

}  // namespace

void convert(const ConvertArgs& args, const Parallel& parallel, IsaSet isa) {
  if (args.n <= 0) return;
  const ConvertVariant& variant = choose(convert_variants(), isa);
  const std::int64_t units = ceil_div(args.n, kUnit);
  const std::int64_t parts = parts_of(units, args.n > kSerialElements, parallel);
  share(parts, 0, parallel, [&](std::int64_t part, void*) {
    const std::int64_t begin = begin_of(units, part, parts) * kUnit;
    const std::int64_t end = begin_of(units, part + 1, parts) * kUnit;
    ConvertArgs slice = args;
    slice.from = static_cast<const char*>(args.from) + begin * size_of(args.from_format);
    slice.to = static_cast<char*>(args.to) + begin * size_of(args.to_format);
    slice.n = (end < args.n ? end : args.n) - begin;
    if (args.from_format == args.to_format) {
      std::memmove(slice.to, slice.from, static_cast<std::size_t>(slice.n * size_of(slice.to_format)));
    } else {
      variant.run(slice);
    }
    return true;
  });
}

bool convert_supported(IsaSet isa) { return choose(convert_variants(), isa).needs != 0; }

const char* convert_variant(IsaSet isa) { return choose(convert_variants(), isa).name; }

}  // namespace ipexrun::kernels
