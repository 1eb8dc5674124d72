// Looks at the targets, shares the rows among the workers and adds their losses up. Compiled for the base instruction set.
#include "kernels/cross_entropy.h"

#include <memory>
#include <new>

#include "kernels/bf16.h"
#include "kernels/choose.h"
#include "kernels/dispatch.h"
#include "kernels/share.h"

namespace ipexrun::kernels {
namespace {

/// Below this many elements a call is shorter than waking a second worker.
constexpr std::int64_t kSerialElements = 1 << 14;

double weight_of(const CrossEntropyRows& args, std::int64_t i) {
  if (args.weight == nullptr) return 1;
  return static_cast<double>(args.weight_dtype == DType::kF32 ? static_cast<const float*>(args.weight)[i]
                                                              : bf16_to_f32(static_cast<const std::uint16_t*>(args.weight)[i]));
}

bool targets_are_columns(const CrossEntropyRows& args) {
  for (std::int64_t row = 0; row < args.rows; ++row) {
    const std::int64_t target = args.targets[row];
    if (target != args.ignored && (target < 0 || target >= args.columns)) return false;
  }
  return true;
}

/// Only smoothing needs it.
double weight_sum(const CrossEntropyRows& args) {
  if (args.weight == nullptr) return static_cast<double>(args.columns);
  double sum = 0;
  for (std::int64_t i = 0; args.smoothing != 0 && i < args.columns; ++i) sum += weight_of(args, i);
  return sum;
}

std::int64_t parts_for(const CrossEntropyRows& args, const Parallel& parallel) {
  return parts_of(args.rows, args.columns > kSerialElements / args.rows, parallel);
}

void put(void* data, DType dtype, std::int64_t index, double value) {
  const auto rounded = static_cast<float>(value);
  if (dtype == DType::kF32) {
    static_cast<float*>(data)[index] = rounded;
  } else {
    static_cast<std::uint16_t*>(data)[index] = bf16_from_f32(rounded);
  }
}

}  // namespace

bool cross_entropy(const CrossEntropyArgs& args, const Parallel& parallel, IsaSet isa) {
  if (!targets_are_columns(args)) return false;
  const std::int64_t rows = args.rows < 0 ? 0 : args.rows;
  const std::unique_ptr<double[]> losses(new (std::nothrow) double[static_cast<std::size_t>(rows) + 1]);
  if (losses == nullptr) return false;
  const CrossEntropyVariant& variant = choose(cross_entropy_variants(), isa);
  const double weights = weight_sum(args);
  if (rows > 0) {
    const std::int64_t parts = parts_for(args, parallel);
    share(parts, 0, parallel, [&](std::int64_t part, void*) {
      variant.losses(args, weights, begin_of(rows, part, parts), begin_of(rows, part + 1, parts), losses.get());
      return true;
    });
  }
  double sum = 0;
  double divisor = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    if (args.reduction == Reduction::kNone) put(args.loss, args.loss_dtype, row, losses[row]);
    sum += losses[row];
    if (args.targets[row] != args.ignored) divisor += weight_of(args, args.targets[row]);
  }
  if (args.reduction != Reduction::kNone) put(args.loss, args.loss_dtype, 0, args.reduction == Reduction::kMean ? sum / divisor : sum);
  if (args.divisor != nullptr) *args.divisor = divisor;
  return true;
}

bool cross_entropy_grad(const CrossEntropyGradArgs& args, const Parallel& parallel, IsaSet isa) {
  if (!targets_are_columns(args)) return false;
  if (args.rows <= 0 || args.columns <= 0) return true;
  const CrossEntropyVariant& variant = choose(cross_entropy_variants(), isa);
  const double weights = weight_sum(args);
  const std::int64_t parts = parts_for(args, parallel);
  return share(parts, 0, parallel, [&](std::int64_t part, void*) {
    variant.grads(args, weights, begin_of(args.rows, part, parts), begin_of(args.rows, part + 1, parts));
    return true;
  });
}

bool cross_entropy_supported(IsaSet isa) { return choose(cross_entropy_variants(), isa).needs != 0; }

const char* cross_entropy_variant(IsaSet isa) { return choose(cross_entropy_variants(), isa).name; }

}  // namespace ipexrun::kernels
