// What variants of pool_last are. Plain data: see dispatch.h.
#pragma once

#include "kernels/dispatch.h"
#include "kernels/packed.h"
#include "kernels/pool_last.h"

namespace ipexrun::kernels {

/// Channels that are worked on at a time: a row of outputs and such a block of it is an item.
inline constexpr std::int64_t kPoolLastChannels = 64;

/// Elements of a window along one dimension: begin, begin + dilation, ... below end. `counted`: with those of the padding.
struct PoolLastRange {
  std::int64_t begin;
  std::int64_t end;
  std::int64_t counted;
};

[[maybe_unused]] static constexpr PoolLastRange pool_last_range(const PoolWindow& window, std::int64_t size, std::int64_t i) {
  const std::int64_t start = i * window.stride - window.pad;
  const std::int64_t behind = start + (window.size - 1) * window.dilation + 1;
  const std::int64_t padded = size + window.pad;
  PoolLastRange range{start, behind < size ? behind : size, (start + window.size < padded ? start + window.size : padded) - start};
  if (start < 0) range.begin += (-start + window.dilation - 1) / window.dilation * window.dilation;
  return range;
}

struct PoolLastVariant {
  const char* name;
  IsaSet needs;
  /// Items [begin, end), each a row of outputs by a block of channels, blocks first.
  void (*max)(const PoolLastArgs& args, std::int64_t begin, std::int64_t end);
  void (*average)(const PoolLastArgs& args, std::int64_t begin, std::int64_t end);
};

using PoolLastVariants = Variants<PoolLastVariant>;
PoolLastVariants pool_last_variants();

}  // namespace ipexrun::kernels
