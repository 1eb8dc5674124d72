// Shares the rows among the workers and gives each its scratch. Compiled for the base instruction set.
#include "kernels/normalize.h"

#include "kernels/choose.h"
#include "kernels/dispatch.h"
#include "kernels/packed.h"
#include "kernels/share.h"

namespace ipexrun::kernels {
namespace {

/// Below this many elements a call is shorter than waking a second worker.
constexpr std::int64_t kSerialElements = 1 << 14;

template <typename Args>
using Run = void (*)(const Args& args, std::int64_t row_begin, std::int64_t row_end, float* scratch);

template <typename Args>
bool share_rows(const Args& args, Run<Args> run, std::int64_t scratch_rows, const Parallel& parallel) {
  if (args.rows <= 0 || args.columns <= 0) return true;
  const std::int64_t padded = ceil_div(args.columns, kNormalizePadding) * kNormalizePadding;
  const std::int64_t parts = parts_of(args.rows, args.columns > kSerialElements / args.rows, parallel);
  const std::size_t scratch_bytes = static_cast<std::size_t>(scratch_rows * padded) * sizeof(float);
  return share(parts, scratch_bytes, parallel, [&](std::int64_t part, void* scratch) {
    run(args, begin_of(args.rows, part, parts), begin_of(args.rows, part + 1, parts), static_cast<float*>(scratch));
    return true;
  });
}

/// Two rows of parameters, one for a sum that the caller does not want, and one for a result of which only the bf16 is wanted.
std::int64_t rows_of_scratch(const NormArgs& args) { return 2 + (args.residual != nullptr && args.sum == nullptr) + (args.to == nullptr); }

}  // namespace

bool softmax(const SoftmaxArgs& args, const Parallel& parallel, IsaSet isa) {
  return share_rows(args, choose(normalize_variants(), isa).softmax, 1, parallel);
}

bool layer_norm(const NormArgs& args, const Parallel& parallel, IsaSet isa) {
  return share_rows(args, choose(normalize_variants(), isa).layer_norm, rows_of_scratch(args), parallel);
}

bool rms_norm(const NormArgs& args, const Parallel& parallel, IsaSet isa) {
  return share_rows(args, choose(normalize_variants(), isa).rms_norm, rows_of_scratch(args), parallel);
}

bool group_norm(const GroupNormArgs& args, const Parallel& parallel, IsaSet isa) {
  return share_rows(args, choose(normalize_variants(), isa).group_norm, 0, parallel);
}

bool scale_channels(const ChannelScaleArgs& args, const Parallel& parallel, IsaSet isa) {
  return share_rows(args, choose(normalize_variants(), isa).scale_channels, args.adjacent ? 2 : 0, parallel);
}

bool normalize_supported(IsaSet isa) { return choose(normalize_variants(), isa).needs != 0; }

const char* normalize_variant(IsaSet isa) { return choose(normalize_variants(), isa).name; }

}  // namespace ipexrun::kernels
