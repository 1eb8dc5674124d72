#include "kernels/caches.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>

namespace ipexrun::kernels {
namespace {

std::atomic<std::int64_t> assumed{0};
std::atomic<std::int64_t> assumed_l1{0};

std::int64_t l1_of_machine() noexcept {
#ifdef _SC_LEVEL1_DCACHE_SIZE
  const std::int64_t found = ::sysconf(_SC_LEVEL1_DCACHE_SIZE);
  if (found > 0) return found;
#endif
  return kUsualL1Bytes;
}

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

std::int64_t l1_bytes() noexcept {
  const std::int64_t said = assumed_l1.load(std::memory_order_relaxed);
  if (said > 0) return said;
  static const std::int64_t found = l1_of_machine();
  return found;
}

void assume_l2_bytes(std::int64_t bytes) noexcept { assumed.store(bytes, std::memory_order_relaxed); }
void assume_l1_bytes(std::int64_t bytes) noexcept { assumed_l1.store(bytes, std::memory_order_relaxed); }

}  // namespace ipexrun::kernels
