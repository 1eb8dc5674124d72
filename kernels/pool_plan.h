// Where the variants of pool keep what they need of a call, in one block of scratch a worker. Plain data: see dispatch.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/pool.h"

namespace ipexrun::kernels {

/// Rows of scratch are this many elements long, or a multiple: two of the widest vectors.
inline constexpr std::int64_t kPoolPadding = 32;

/// All lengths in elements of 4 bytes but those of `tags` and `taps`, which have 8.
struct PoolPlan {
  std::int64_t span = 1;     ///< rows of the input that a row of windows reaches over: as many lie in scratch
  std::int64_t columns = 0;  ///< out_width, padded
  std::int64_t pitch = 0;    ///< columns of the input that are alike modulo the stride, padding included
  std::int64_t row = 0;      ///< pitch * stride: one row of the input

  // Offsets in scratch, in bytes.
  std::size_t rows = 0;
  std::size_t tags = 0;    ///< which row of which plane lies in a row of scratch
  std::size_t taps = 0;    ///< where a window's columns begin
  std::size_t first = 0;   ///< of each output column: the first column of the input that counts
  std::size_t column = 0;  ///< ... where its window begins, perhaps before the first column
  std::size_t result = 0;  ///< a row of the output as fp32
  std::size_t bytes = 0;
};

}  // namespace ipexrun::kernels
