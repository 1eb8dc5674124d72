// The truth of gated: activation's truth times b in doubles, one rounding to fp32 and, for bf16, one more.
#include "kernels/ref/gated.h"

#include "kernels/ref/activation.h"
#include "kernels/ref/element.h"

namespace ipexrun::kernels::ref {

void gated(const GatedArgs& args) {
  for (std::int64_t i = 0; i < args.columns; ++i) {
    put(args.to, args.dtype, i, activation_of(args.kind, get(args.a, args.dtype, i)) * get(args.b, args.dtype, i));
  }
}

}  // namespace ipexrun::kernels::ref
