// Chooses the variant, splits C among the workers and gives each its scratch. Compiled for the base instruction set.
#include "kernels/linear.h"

#include "kernels/choose.h"
#include "kernels/dispatch.h"
#include "kernels/shares.h"

namespace ipexrun::kernels {
namespace {

/// Tiles take no windows.
const LinearVariant& variant_of(const LinearArgs& args, IsaSet isa) {
  const LinearVariants table = linear_variants();
  if (args.k <= 0) return table.first[table.count - 1];
  return choose(table, args.windows != nullptr ? isa & ~IsaSet{kIsaAmxBf16} : isa);
}

}  // namespace

bool linear_bf16_supported(const LinearArgs& args, IsaSet isa) {
  if (args.m <= 0 || args.n <= 0 || args.k <= 0 || packed_b_bytes(args.k, args.n) == 0) return false;
  const LinearVariant& variant = variant_of(args, isa);
  return variant.native || (args.a_dtype == DType::kBf16 && variant.needs != 0);
}

const char* linear_bf16_variant(const LinearArgs& args, IsaSet isa) { return variant_of(args, isa).name; }

bool linear_bf16(const LinearArgs& args, const Parallel& parallel, IsaSet isa) {
  if (args.m <= 0 || args.n <= 0) return true;
  // Without a K there is nothing to multiply: the reference writes the bias or zeros.
  const LinearVariant& variant = variant_of(args, isa);
  const GridCosts costs = isa_has(variant.needs, kIsaAmxBf16) ? GridCosts() : kGridCostsBf16;
  return run_blocks(args, variant, shares_of(args.m, args.n, steps_of(args.k), workers_for(args.m, args.n, args.k, parallel), costs),
                    parallel);
}

}  // namespace ipexrun::kernels
