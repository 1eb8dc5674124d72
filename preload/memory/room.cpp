#include "preload/memory/room.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
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

/// The number in a file of one; false where there is none ("max", no such file).
bool read_number(const char* path, std::uint64_t& number) noexcept {
  std::FILE* file = std::fopen(path, "re");
  if (file == nullptr) return false;
  unsigned long found = 0;
  const bool any = std::fscanf(file, "%lu", &found) == 1;
  std::fclose(file);
  number = found;
  return any;
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

std::uint64_t available_memory_bytes() noexcept {
  std::uint64_t kib = 0;
  if (std::FILE* file = std::fopen("/proc/meminfo", "re")) {
    char line[160];
    while (std::fgets(line, sizeof line, file) != nullptr) {
      if (std::sscanf(line, "MemAvailable: %lu kB", &kib) == 1) break;
    }
    std::fclose(file);
  }
  return kib * 1024;
}

std::uint64_t allowed_memory_bytes() noexcept {
  constexpr std::array<std::array<const char*, 2>, 2> kLimits = {
      {{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
       {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"}}};
  std::uint64_t allowed = available_memory_bytes();
  for (const auto& [limit, usage] : kLimits) {
    std::uint64_t most = 0;
    std::uint64_t used = 0;
    if (read_number(limit, most) && read_number(usage, used)) allowed = std::min(allowed, most > used ? most - used : 0);
  }
  return allowed;
}

std::uint64_t free_memory_bytes() noexcept {
  return static_cast<std::uint64_t>(std::max(::sysconf(_SC_AVPHYS_PAGES), 0L)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace ipexrun::preload
