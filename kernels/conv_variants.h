// What variants of conv are, and where a call keeps what in scratch. Plain data: see dispatch.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/conv.h"
#include "kernels/dispatch.h"

namespace ipexrun::kernels {

/// Channels that are worked on at a time, and of which a depthwise pack is made: block after block, [taps][32], zeros behind the last
/// channel.
inline constexpr std::int64_t kConvChannels = 32;

/// Rows of kConvChannels fp32, one a pixel, rounded to bf16: the first `channels` of each to `to`, pixels `stride` elements apart.
using ConvPut = void (*)(const float* sums, std::int64_t pixels, std::int64_t channels, std::uint16_t* to, std::int64_t stride);

/// A depthwise call is strips: image after image, block after block of channels, segment after segment of the last dimension. Each
/// has as many rows as the other two dimensions have outputs.
struct DepthwisePlan {
  std::int64_t taps = 0;
  std::int64_t blocks = 0;   ///< of channels
  std::int64_t segment = 0;  ///< outputs of one but the last
  std::int64_t segments = 0;
  std::int64_t rows = 0;    ///< of a strip
  std::int64_t pixels = 0;  ///< of the input, in a row of scratch
  std::int64_t strips = 0;
  ConvPut put = nullptr;  ///< the variant's

  // Offsets in scratch, in bytes.
  std::size_t ring = 0;     ///< rows of the input as fp32
  std::size_t tags = 0;     ///< which row of the strip's input lies in a row of scratch
  std::size_t at = 0;       ///< rows that the windows of an output meet
  std::size_t weights = 0;  ///< of a block as fp32, where they are not packed so
  std::size_t sums = 0;     ///< a row of outputs, behind the bias
  std::size_t bytes = 0;
};

struct DepthwiseVariant {
  const char* name;
  IsaSet needs;
  /// Rows [begin, end) of all strips' on this thread. `scratch`, 64-byte aligned, as planned; the reference wants none.
  void (*run)(const ConvArgs& args, const DepthwisePlan& plan, std::int64_t begin, std::int64_t end, void* scratch);
  ConvPut put;
};

using DepthwiseVariants = Variants<DepthwiseVariant>;
DepthwiseVariants depthwise_variants();

}  // namespace ipexrun::kernels
