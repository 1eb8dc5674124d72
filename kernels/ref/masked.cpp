// The truth of masked: one element after the other.
#include "kernels/ref/masked.h"

#include "kernels/ref/element.h"

namespace ipexrun::kernels::ref {

void masked(const MaskedArgs& args) {
  for (std::int64_t i = 0; i < args.n; ++i) {
    put(args.to, args.dtype, i, get(args.from, args.dtype, i) * static_cast<double>(args.mask[i] != 0 ? args.scale : 0.0f));
  }
}

}  // namespace ipexrun::kernels::ref
