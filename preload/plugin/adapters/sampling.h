// Places at which results are compared with fp64.
#pragma once

#include <cstdint>

namespace ipexrun::preload {

inline constexpr std::int64_t kSampledProducts = 1'000'000;  ///< multiply-adds in fp64 that one check may cost: about a millisecond

/// Calls visit(index) for `count` indices spread evenly over [0, size), the first and the last included.
template <typename Visit>
void spread(std::int64_t size, std::int64_t count, Visit visit) {
  for (std::int64_t i = 0; i < count; ++i) visit(count == 1 ? 0 : i * (size - 1) / (count - 1));
}

}  // namespace ipexrun::preload
