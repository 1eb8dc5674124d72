#include "preload/memory/c_malloc.h"

#include <dlfcn.h>
#include <malloc.h>
#include <sched.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <memory>

#include "configs/contract/env.h"

namespace ipexrun::preload {
namespace {

constexpr std::array<const char*, 6> kSettings = {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_",
                                                  "MALLOC_ARENA_MAX",       "MALLOC_MMAP_MAX_",       "GLIBC_TUNABLES"};
constexpr int kMmapBytes = 32 << 20;  // what malloc comes to by itself with large blocks
constexpr int kTrimBytes = 64 << 20;

/// The C library's own, whatever other malloc the process may have. mallinfo2: since glibc 2.33.
struct Library {
  decltype(&::mallopt) set = nullptr;
  decltype(&::malloc_trim) trim = nullptr;
  decltype(&::mallinfo2) info = nullptr;
};

const Library& library() {
  static const Library found = [] {
    Library one;
    void* const handle = ::dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) return one;
    one.set = reinterpret_cast<decltype(one.set)>(::dlsym(handle, "mallopt"));
    one.trim = reinterpret_cast<decltype(one.trim)>(::dlsym(handle, "malloc_trim"));
    one.info = reinterpret_cast<decltype(one.info)>(::dlsym(handle, "mallinfo2"));
    return one;
  }();
  return found;
}

/// Whether the C library counts a block that the process allocates. (The address of malloc says nothing: in a program that is not position
/// independent it is a stub's.)
bool is_the_processs() {
  constexpr std::size_t kBytes = 96 << 10;
  const auto process = reinterpret_cast<void* (*)(std::size_t)>(::dlsym(RTLD_DEFAULT, "malloc"));
  const auto release = reinterpret_cast<void (*)(void*)>(::dlsym(RTLD_DEFAULT, "free"));
  if (process == nullptr || release == nullptr) return false;
  const std::size_t before = library().info().uordblks;
  void* const block = process(kBytes);
  const std::size_t after = library().info().uordblks;
  release(block);
  return after >= before + kBytes;
}

/// Whether one of a list as Linux writes it ("0-3,8") is in the set.
bool meets(const cpu_set_t& allowed, std::FILE* list) {
  int first = 0;
  while (std::fscanf(list, "%d", &first) == 1) {
    int last = first;
    if (std::fscanf(list, "-%d", &last) != 1) last = first;
    for (int cpu = first; cpu <= last && cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &allowed)) return true;
    }
    if (std::fgetc(list) != ',') break;
  }
  return false;
}

bool computes_on_one_node() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return false;
  constexpr int kMostNodes = 1024;
  int nodes = 0;
  int absent = 0;
  for (int node = 0; node < kMostNodes && absent < 64; ++node) {
    char path[64];
    std::snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> list(std::fopen(path, "re"), std::fclose);
    absent = list == nullptr ? absent + 1 : 0;
    if (list != nullptr && meets(allowed, list.get())) ++nodes;
  }
  return nodes <= 1;
}

}  // namespace

bool may_set_c_malloc() {
  for (const char* name : kSettings) {
    if (env::get_named(name)) return false;
  }
  const Library& here = library();
  return here.set != nullptr && here.trim != nullptr && here.info != nullptr && computes_on_one_node() && is_the_processs();
}

void keep_in_c_malloc(std::uint64_t bytes) noexcept {
  constexpr std::uint64_t kMost = 0x7fffffff;
  library().set(M_MMAP_THRESHOLD, kMmapBytes);
  library().set(M_TRIM_THRESHOLD, static_cast<int>(bytes < kMost ? bytes : kMost));
}

void c_malloc_as_before() noexcept {
  library().set(M_MMAP_THRESHOLD, kMmapBytes);
  library().set(M_TRIM_THRESHOLD, kTrimBytes);
  library().trim(0);
}

std::uint64_t free_bytes_of_c_malloc() noexcept { return library().info().fordblks; }

void give_back_of_c_malloc() noexcept { library().trim(0); }

}  // namespace ipexrun::preload
