#include "launcher/run/malloc_exercise.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace ipexrun::launcher {
namespace {

constexpr std::size_t kThreads = 4;
constexpr std::array<std::size_t, 9> kSizes{1, 24, 100, 1000, 4096, 70'000, 1u << 20, 5u << 20, 32u << 20};

/// Writes the ends of a block, so that its memory has to be there.
bool touch(void* block, std::size_t bytes) {
  if (block == nullptr) return false;
  auto* const first = static_cast<volatile unsigned char*>(block);
  first[0] = 1;
  first[bytes - 1] = 2;
  return true;
}

/// Appends blocks of all sizes; false when one could not be had or an alignment was not kept.
bool allocate(std::vector<void*>& blocks) {
  for (const std::size_t bytes : kSizes) {
    void* const plain = std::malloc(bytes);
    void* const zeroed = std::calloc(1, bytes);
    void* aligned = nullptr;
    if (::posix_memalign(&aligned, 64, bytes) != 0 || reinterpret_cast<std::uintptr_t>(aligned) % 64 != 0) return false;
    void* const grown = std::realloc(std::malloc(bytes), 2 * bytes);
    if (zeroed != nullptr && static_cast<const unsigned char*>(zeroed)[bytes / 2] != 0) return false;
    for (void* block : {plain, zeroed, aligned, grown}) blocks.push_back(block);
    if (!touch(plain, bytes) || !touch(zeroed, bytes) || !touch(aligned, bytes) || !touch(grown, 2 * bytes)) return false;
  }
  return true;
}

void release(std::vector<void*>& blocks) {
  for (void* block : blocks) std::free(block);
  blocks.clear();
}

bool on_threads() {
  std::array<std::vector<void*>, kThreads> blocks;
  std::array<bool, kThreads> fine{};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) threads.emplace_back([&blocks, &fine, i] { fine[i] = allocate(blocks[i]); });
  for (std::thread& thread : threads) thread.join();
  threads.clear();
  // Each frees what another one allocated, as DataLoader's pin thread or autograd's threads do.
  for (std::size_t i = 0; i < kThreads; ++i) threads.emplace_back([&blocks, i] { release(blocks[(i + 1) % kThreads]); });
  for (std::thread& thread : threads) thread.join();
  for (const bool one : fine)
    if (!one) return false;
  return true;
}

bool in_a_forked_child() {
  const pid_t pid = ::fork();
  if (pid < 0) return true;  // no process may be started: says nothing about the allocator
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::vector<void*> blocks;
    const bool fine = allocate(blocks);
    release(blocks);
    ::_exit(fine ? 0 : 1);
  }
  int status = 0;
  return ::waitpid(pid, &status, 0) != pid || status == 0;
}

/// Whether nothing preloaded took the place of the C library's malloc.
bool malloc_is_libcs() {
  Dl_info malloc_info{};
  Dl_info libc_info{};
  void* const found = ::dlsym(RTLD_DEFAULT, "malloc");
  void* const other = ::dlsym(RTLD_DEFAULT, "gnu_get_libc_version");  // of the C library alone
  return found != nullptr && other != nullptr && ::dladdr(found, &malloc_info) != 0 && ::dladdr(other, &libc_info) != 0 &&
         malloc_info.dli_fbase == libc_info.dli_fbase;
}

}  // namespace

int exercise_malloc(const char* library) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a candidate that hangs is not to outlive a launcher that was interrupted
  if (!on_threads() || !in_a_forked_child()) {
    std::fputs("memory could not be allocated\n", stderr);
    return 1;
  }
  // Only this reason is about the preloaded library; a file that cannot be loaded for another one fails without it, too.
  if (library != nullptr && ::dlopen(library, RTLD_NOW | RTLD_LOCAL) == nullptr) {
    const char* why = ::dlerror();
    if (why != nullptr && std::strstr(why, "static TLS") != nullptr) {
      std::fprintf(stderr, "%s\n", why);
      return 1;
    }
  }
  if (malloc_is_libcs()) std::puts(kMallocOfLibc);
  std::puts(kMallocExerciseDone);
  return 0;
}

}  // namespace ipexrun::launcher
