// Shares the rows of a call among the workers and adds up what they summed. Compiled for the base instruction set.
#include "kernels/batch_norm.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <new>

#include "kernels/batch_norm_variants.h"
#include "kernels/choose.h"
#include "kernels/ref/element.h"
#include "kernels/share.h"

namespace ipexrun::kernels {
namespace {

/// Below this many elements a call is shorter than waking a second worker.
constexpr std::int64_t kSerialElements = 1 << 15;
/// Rows are summed in at most so many blocks, each of at least so many elements, whatever the number of workers.
constexpr std::int64_t kBlocks = 64;
constexpr std::int64_t kBlockElements = 1 << 14;
/// The second pass goes through its rows in chunks of so many.
constexpr std::int64_t kChunkElements = 1 << 14;

std::int64_t blocks_of(std::int64_t rows, std::int64_t channels) {
  const std::int64_t blocks = std::clamp<std::int64_t>(rows * channels / kBlockElements, 1, kBlocks);
  return std::min(rows, blocks);
}

/// Sums [2, channels] of all blocks of rows; null when memory is short.
template <typename Args>
std::unique_ptr<double[]> sums_of(const Args& args, void (*run)(const Args&, std::int64_t, std::int64_t, double*, float*),
                                  const Parallel& parallel) {
  const std::int64_t blocks = std::max<std::int64_t>(blocks_of(args.rows, args.channels), 1);
  const std::int64_t count = 2 * args.channels;
  std::unique_ptr<double[]> sums(new (std::nothrow) double[static_cast<std::size_t>(blocks * count)]);
  if (sums == nullptr) return sums;
  const std::int64_t parts = parts_of(blocks, args.rows * args.channels > kSerialElements, parallel);
  const auto scratch_bytes = static_cast<std::size_t>(2 * args.channels + 64) * sizeof(float);
  const bool done = share(parts, scratch_bytes, parallel, [&](std::int64_t part, void* scratch) {
    for (std::int64_t b = begin_of(blocks, part, parts); b < begin_of(blocks, part + 1, parts); ++b) {
      run(args, begin_of(args.rows, b, blocks), begin_of(args.rows, b + 1, blocks), sums.get() + b * count, static_cast<float*>(scratch));
    }
    return true;
  });
  if (!done) return nullptr;
  for (std::int64_t b = 1; b < blocks; ++b) {
    for (std::int64_t i = 0; i < count; ++i) sums[static_cast<std::size_t>(i)] += sums[static_cast<std::size_t>(b * count + i)];
  }
  return sums;
}

template <typename Args>
void share_rows(const Args& args, void (*run)(const Args&, std::int64_t, std::int64_t), const Parallel& parallel) {
  if (args.rows <= 0 || args.channels <= 0) return;
  const std::int64_t parts = parts_of(args.rows, args.rows * args.channels > kSerialElements, parallel);
  share(parts, 0, parallel, [&](std::int64_t part, void* /*scratch*/) {
    // From the last row on: those that were summed last are still in a cache.
    const std::int64_t first = begin_of(args.rows, part, parts);
    const std::int64_t chunk = std::max<std::int64_t>(kChunkElements / args.channels, 8);
    for (std::int64_t end = begin_of(args.rows, part + 1, parts); end > first; end -= chunk) run(args, std::max(end - chunk, first), end);
    return true;
  });
}

/// A number about which those of a channel lie: of three rows the one in the middle, since one pixel alone may be far from all others, and
/// squares of what differs from it would lose the digits of the rest.
float pivot_of(const BatchMomentsArgs& args, std::int64_t c) {
  const auto row = [&](std::int64_t i) { return static_cast<float>(ref::get(args.from, args.dtype, i * args.channels + c)); };
  const float first = row(0);
  const float second = row(args.rows / 2);
  const float middle = std::max(std::min(first, second), std::min(std::max(first, second), row(args.rows - 1)));
  return std::isfinite(middle) ? middle : 0.0f;
}

}  // namespace

bool batch_norm_supported(IsaSet isa) { return choose(batch_norm_variants(), isa).needs != 0; }

bool batch_moments(const BatchMomentsArgs& args, const Parallel& parallel, IsaSet isa) {
  const std::unique_ptr<float[]> pivots(new (std::nothrow) float[static_cast<std::size_t>(args.channels)]);
  if (pivots == nullptr) return false;
  for (std::int64_t c = 0; c < args.channels; ++c) pivots[static_cast<std::size_t>(c)] = pivot_of(args, c);
  const PivotedMomentsArgs pivoted{args, pivots.get()};
  const auto sums = sums_of(pivoted, choose(batch_norm_variants(), isa).moments, parallel);
  if (sums == nullptr) return false;
  const auto rows = static_cast<double>(args.rows);
  for (std::int64_t c = 0; c < args.channels; ++c) {
    const double from_pivot = sums[static_cast<std::size_t>(c)] / rows;
    const double square = sums[static_cast<std::size_t>(args.channels + c)] / rows;
    args.mean[c] = static_cast<double>(pivots[static_cast<std::size_t>(c)]) + from_pivot;
    args.variance[c] = std::isnan(square) ? square : std::max(square - from_pivot * from_pivot, 0.0);
  }
  return true;
}

void batch_norm(const BatchNormArgs& args, const Parallel& parallel, IsaSet isa) {
  share_rows(args, choose(batch_norm_variants(), isa).norm, parallel);
}

bool batch_norm_grad_sums(const BatchNormGradArgs& args, const Parallel& parallel, IsaSet isa) {
  const auto sums = sums_of(args, choose(batch_norm_variants(), isa).grad_sums, parallel);
  if (sums == nullptr) return false;
  std::copy_n(sums.get(), args.channels, args.sum);
  std::copy_n(sums.get() + args.channels, args.channels, args.product);
  return true;
}

void batch_norm_grad(const BatchNormGradArgs& args, const Parallel& parallel, IsaSet isa) {
  share_rows(args, choose(batch_norm_variants(), isa).grad, parallel);
}

const char* batch_norm_variant(IsaSet isa) { return choose(batch_norm_variants(), isa).name; }

}  // namespace ipexrun::kernels
