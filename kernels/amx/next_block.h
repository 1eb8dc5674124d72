// What a writer of finished blocks fetches ahead. Internal linkage, see dispatch.h.
#pragma once

#include <cstdint>

namespace ipexrun::kernels::amx {

/// How far from a block of C the one is that will be written a strip, or a chunk of panels, later; zeros where none is.
struct NextBlock {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

/// Brings a line into this core's caches to be written. Where another core read what lay there before (a layer's image, once the next layer
/// was cut otherwise), it gives the line up now; a store would wait for that.
static inline __attribute__((always_inline)) void prefetch_to_write(const char* at) { __asm__ volatile("prefetchw %0" ::"m"(*at)); }

}  // namespace ipexrun::kernels::amx
