#include "preload/memory/room.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <limits>

namespace ipexrun::preload {
namespace {

/// Transposed or converted, packed, and packed as float32 where the weight is bf16.
constexpr std::size_t kCopies = 4;

/// vm.overcommit_memory of 2: mappings are refused beyond what memory and swap hold.
bool promises_are_kept() noexcept {
  const int file = open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  char policy = '0';
  const bool known = read(file, &policy, 1) == 1;
  close(file);
  return known && policy == '2';
}

bool is_limited() noexcept {
  static const bool by_system = promises_are_kept();
  rlimit limit{};
  return by_system || getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY;
}

}  // namespace

bool has_room(std::size_t bytes) noexcept {
  const int before = errno;
  if (!is_limited()) {
    errno = before;
    return true;
  }
  void* const there = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const bool has = there != MAP_FAILED;
  if (has) munmap(there, bytes);
  errno = before;
  return has;
}

bool has_room_for_pack(std::size_t weight_bytes) noexcept {
  if (weight_bytes > (std::numeric_limits<std::size_t>::max() - kRoomForKernels) / kCopies) return false;
  return has_room(kCopies * weight_bytes + kRoomForKernels);
}

}  // namespace ipexrun::preload
