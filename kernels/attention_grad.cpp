// Shares the heads of K and V among the workers. Compiled for the base instruction set.
#include "kernels/attention_grad.h"

#include "kernels/attention_grad_variants.h"
#include "kernels/choose.h"
#include "kernels/share.h"

namespace ipexrun::kernels {
namespace {

constexpr double kSerialProducts = 1 << 16;  ///< of one of five products: below this a call is shorter than waking a second worker

}  // namespace

bool attention_grad(const AttentionGradArgs& args, const Parallel& parallel, IsaSet isa) {
  const AttentionArgs& f = args.forward;
  if (f.batch <= 0 || f.heads <= 0 || f.depth <= 0 || f.rows <= 0 || f.keys <= 0) return true;
  const AttentionGradVariant& variant = choose(attention_grad_variants(f.dtype), isa);
  const std::int64_t units = f.batch * f.kv_heads;
  const double products =
      static_cast<double>(f.batch * f.heads) * static_cast<double>(f.rows) * static_cast<double>(f.keys) * static_cast<double>(f.depth);
  const std::int64_t parts = parts_of(units, products > kSerialProducts, parallel);
  return share(parts, variant.scratch_bytes(args), parallel, [&](std::int64_t part, void* scratch) {
    variant.run(args, begin_of(units, part, parts), begin_of(units, part + 1, parts), scratch);
    return true;
  });
}

bool attention_grad_supported(DType dtype, IsaSet isa) { return choose(attention_grad_variants(dtype), isa).needs != 0; }

const char* attention_grad_variant(DType dtype, IsaSet isa) { return choose(attention_grad_variants(dtype), isa).name; }

}  // namespace ipexrun::kernels
