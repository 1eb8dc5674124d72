// What the bytes of a weight are, in 64 bits: whether a pack made from them is still true. Not cryptographic.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/parallel.h"

namespace ipexrun::preload {

/// Cache lines that a sampled fingerprint reads, one somewhere in each part of the region.
inline constexpr std::size_t kSampledLines = 64;

/// Of all bytes, the same whatever the threads. At the speed of memory, which one thread does not reach: more than a MiB is shared out.
std::uint64_t full_hash(const void* data, std::size_t size_bytes, const kernels::Parallel& parallel = {}) noexcept;

/// Of kSampledLines lines (first and last included), of everything where the region is no larger. Costs a fraction of a
/// microsecond; misses a change that lies between the lines.
std::uint64_t sampled_hash(const void* data, std::size_t size_bytes) noexcept;

}  // namespace ipexrun::preload
