// Memory that a kernel needs while it runs: one buffer a thread, kept for the next call.
#pragma once

#include <cstddef>

namespace ipexrun::kernels {

/// What a thread may keep between calls; a larger buffer is given back by release_large_scratch().
inline constexpr std::size_t kScratchKeepBytes = std::size_t{8} << 20;

/// At least `bytes` bytes, 64-byte aligned, valid until the next call on this thread; null when memory is short. Contents undefined.
void* thread_scratch(std::size_t bytes);

/// Frees this thread's buffer when it is larger than kScratchKeepBytes.
void release_large_scratch();

}  // namespace ipexrun::kernels
