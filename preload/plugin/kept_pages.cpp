#include "preload/plugin/kept_pages.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <memory>

#include "configs/contract/env.h"
#include "preload/memory/c_malloc.h"
#include "preload/memory/fresh_pages.h"
#include "preload/memory/room.h"

namespace ipexrun::preload {
namespace {

constexpr std::uint32_t kAllocationsALook = 32;
constexpr std::int64_t kWallNs = 50'000'000;
constexpr std::uint64_t kMostKept = std::uint64_t{256} << 20;
constexpr std::uint64_t kLeastKept = std::uint64_t{64} << 20;  // what malloc keeps by itself
constexpr std::uint64_t kShareOfMemory = 16;                   // of what the process may still take, one in so many bytes

std::atomic<FreshPages*> pages{nullptr};  // never deleted
std::atomic<bool> taken{false};           // by a thread that reads
std::atomic<bool> left{false};
std::atomic<std::int64_t> next_ns{0};
std::atomic<FreshPages::State> shown{FreshPages::State::kWatching};
std::uint64_t instances = 1;   // of the program, on this machine
std::uint64_t kept_bytes = 0;  // by the thread that has taken it
std::uint64_t free_before = 0;

std::int64_t coarse_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec;
}

PageReading read_pages() noexcept {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto ns = [](const timeval& time) { return time.tv_sec * std::int64_t{1'000'000'000} + time.tv_usec * 1000; };
  PageReading now;
  now.cpu_ns = ns(used.ru_utime) + ns(used.ru_stime);
  now.faults = static_cast<std::uint64_t>(used.ru_minflt);
  unsigned long resident = 0;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/proc/self/statm", "re"), std::fclose);
  if (file == nullptr || std::fscanf(file.get(), "%*u %lu", &resident) != 1) resident = 0;
  now.resident_bytes = resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return now;
}

void follow(FreshPages::Advice advice) noexcept {
  switch (advice) {
    case FreshPages::Advice::kNothing:
      break;
    case FreshPages::Advice::kKeep:
      kept_bytes = std::clamp(allowed_memory_bytes() / kShareOfMemory / instances, kLeastKept, kMostKept);
      free_before = free_bytes_of_c_malloc();
      keep_in_c_malloc(kept_bytes);
      break;
    case FreshPages::Advice::kAsBefore:
      c_malloc_as_before();
      break;
    case FreshPages::Advice::kLook: {
      const bool too_much = free_bytes_of_c_malloc() > kept_bytes + free_before;
      if (too_much) give_back_of_c_malloc();
      follow(pages.load(std::memory_order_relaxed)->is_too_much(too_much));
      break;
    }
  }
}

void look(FreshPages& watched) noexcept {
  const std::int64_t now_ns = coarse_ns();
  if (now_ns < next_ns.load(std::memory_order_relaxed) || taken.exchange(true, std::memory_order_acquire)) return;
  next_ns.store(now_ns + kWallNs, std::memory_order_relaxed);
  static std::int64_t last_cpu_ns = 0;
  const PageReading reading = read_pages();
  const std::int64_t since_ns = reading.cpu_ns - last_cpu_ns;
  if (!left.load(std::memory_order_relaxed) && (since_ns >= FreshPages::kIntervalNs || since_ns < 0)) {
    last_cpu_ns = reading.cpu_ns;
    follow(watched.read(reading));
    shown.store(watched.state(), std::memory_order_relaxed);
  }
  taken.store(false, std::memory_order_release);
}

constinit thread_local std::uint32_t allocations = 0;

/// torch's own, and a look now and then.
class Counting final : public c10::Allocator {
 public:
  explicit Counting(c10::Allocator& torchs) : torchs_(torchs) {}

  c10::DataPtr allocate(std::size_t bytes) override {
    if (++allocations % kAllocationsALook == 0) [[unlikely]] {
      if (!left.load(std::memory_order_relaxed)) look(*pages.load(std::memory_order_relaxed));
    }
    return torchs_.allocate(bytes);
  }
  bool is_simple_data_ptr(const c10::DataPtr& pointer) const override { return torchs_.is_simple_data_ptr(pointer); }
  c10::DeleterFnPtr raw_deleter() const override { return torchs_.raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { torchs_.copy_data(to, from, bytes); }

 private:
  c10::Allocator& torchs_;
};

}  // namespace

void watch_fresh_pages() {
  if (pages.load(std::memory_order_relaxed) != nullptr || !may_set_c_malloc()) return;
  c10::Allocator* const torchs = c10::GetCPUAllocator();
  if (torchs != c10::GetDefaultCPUAllocator()) return;  // the program's own
  instances = static_cast<std::uint64_t>(std::max<std::int64_t>(env::get_int(env::Id::kInstances).value_or(1), 1));
  pages.store(new FreshPages(static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE))), std::memory_order_relaxed);
  c10::SetCPUAllocator(new Counting(*torchs));
}

void leave_fresh_pages() noexcept {
  if (pages.load(std::memory_order_relaxed) == nullptr || left.exchange(true, std::memory_order_relaxed)) return;
  constexpr int kPatience = 1000;  // a child that was forked while another thread read would wait for ever
  for (int i = 0; i < kPatience && taken.exchange(true, std::memory_order_acquire); ++i) sched_yield();
  const FreshPages::State state = shown.load(std::memory_order_relaxed);
  if (state == FreshPages::State::kTrying || state == FreshPages::State::kKept) c_malloc_as_before();
  taken.store(false, std::memory_order_release);
}

const char* fresh_pages_state() noexcept {
  if (pages.load(std::memory_order_relaxed) == nullptr) return "";
  if (left.load(std::memory_order_relaxed)) return "left";
  switch (shown.load(std::memory_order_relaxed)) {
    case FreshPages::State::kWatching:
      return "watching";
    case FreshPages::State::kTrying:
      return "trying";
    case FreshPages::State::kKept:
      return "kept";
    case FreshPages::State::kLeft:
      break;
  }
  return "left";
}

}  // namespace ipexrun::preload
