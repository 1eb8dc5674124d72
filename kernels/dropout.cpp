// Shares the elements among the workers, whole blocks each. Compiled for the base instruction set.
#include "kernels/dropout.h"

#include "kernels/choose.h"
#include "kernels/dispatch.h"
#include "kernels/dropout_rule.h"
#include "kernels/packed.h"
#include "kernels/share.h"

namespace ipexrun::kernels {
namespace {

/// Below this many elements a call is shorter than waking a second worker.
constexpr std::int64_t kSerialElements = 1 << 15;

bool in_range(double p) { return p >= 0 && p <= 1; }

/// Calls run(begin, end) for the elements of each worker.
template <typename Run>
bool share_elements(std::int64_t n, const Parallel& parallel, const Run& run) {
  const std::int64_t blocks = ceil_div(n, kDropoutBlock);
  const std::int64_t parts = parts_of(blocks, n > kSerialElements, parallel);
  return share(parts, 0, parallel, [&](std::int64_t part, void*) {
    const std::int64_t end = begin_of(blocks, part + 1, parts) * kDropoutBlock;
    run(begin_of(blocks, part, parts) * kDropoutBlock, end < n ? end : n);
    return true;
  });
}

}  // namespace

std::uint64_t dropout_counters(std::int64_t n) {
  return n <= 0 ? 0 : static_cast<std::uint64_t>(ceil_div(n, kDropoutBlock) * kDropoutCounters);
}

bool dropout(const DropoutArgs& args, const Parallel& parallel, IsaSet isa) {
  if (!in_range(args.p)) return false;
  if (args.n <= 0) return true;
  const DropoutVariant& variant = choose(dropout_variants(), isa);
  return share_elements(args.n, parallel, [&](std::int64_t begin, std::int64_t end) {
    DropoutArgs slice = args;
    slice.from = static_cast<const char*>(args.from) + begin * bytes_of(args.dtype);
    slice.to = static_cast<char*>(args.to) + begin * bytes_of(args.dtype);
    if (args.mask != nullptr) slice.mask = args.mask + begin;
    slice.n = end - begin;
    slice.offset = args.offset + dropout_counters(begin);
    variant.run(slice);
  });
}

bool dropout_grad(const DropoutGradArgs& args, const Parallel& parallel, IsaSet isa) {
  if (!in_range(args.p)) return false;
  if (args.n <= 0) return true;
  const DropoutVariant& variant = choose(dropout_variants(), isa);
  return share_elements(args.n, parallel, [&](std::int64_t begin, std::int64_t end) {
    DropoutGradArgs slice = args;
    slice.from = static_cast<const char*>(args.from) + begin * bytes_of(args.dtype);
    slice.to = static_cast<char*>(args.to) + begin * bytes_of(args.dtype);
    slice.mask = args.mask + begin;
    slice.n = end - begin;
    variant.grad(slice);
  });
}

bool dropout_supported(IsaSet isa) { return choose(dropout_variants(), isa).needs != 0; }

const char* dropout_variant(IsaSet isa) { return choose(dropout_variants(), isa).name; }

}  // namespace ipexrun::kernels
