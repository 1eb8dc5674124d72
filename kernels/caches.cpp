#include "kernels/caches.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>

namespace ipexrun::kernels {
namespace {

std::atomic<std::int64_t> assumed{0};

std::int64_t of_machine() noexcept {
#ifdef _SC_LEVEL2_CACHE_SIZE
  const std::int64_t found =
      ::sysconf(_SC_LEVEL2_CACHE_SIZE);  // 0 or -1 where the C library cannot tell (64-bit Arm, some virtual machines)
  if (found > 0) return std::clamp(found, kSmallestL2Bytes, kUsualL2Bytes);
#endif
  return kUsualL2Bytes;
}

}  // namespace

std::int64_t l2_bytes() noexcept {
  const std::int64_t said = assumed.load(std::memory_order_relaxed);
  if (said > 0) return said;
  static const std::int64_t found = of_machine();
  return found;
}

void assume_l2_bytes(std::int64_t bytes) noexcept { assumed.store(bytes, std::memory_order_relaxed); }

}  // namespace ipexrun::kernels
