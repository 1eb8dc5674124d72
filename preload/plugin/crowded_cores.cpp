// GNU's runtime reads how long to loop from the environment, once. But where it manages more threads than there are CPUs it loops for a
// few microseconds only, and it counts anew whenever a team of threads begins or ends. So a team of ours that sleeps makes all of torch's
// threads sleep soon, and ending it gives them their loops back. Where a runtime counts otherwise, nothing happens.
#include "preload/plugin/crowded_cores.h"

#include <ATen/Parallel.h>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>

#include "configs/base/log.h"
#include "configs/contract/env.h"
#include "preload/select/clock.h"
#include "preload/select/crowding.h"

namespace ipexrun::preload {
namespace {

constexpr std::int64_t kLookNs = 100'000'000;
constexpr long kSwitchesOfInterest = 4;  ///< a look in which fewer threads were pushed off their cores needs no closer one
constexpr int kMostThreads = 6;          ///< of the team: where more CPUs are without a thread of torch's, the system has room for others

using GompParallel = void (*)(void (*fn)(void*), void* data, unsigned threads, unsigned flags);

/// Keeps the runtime's count of threads above that of CPUs while it is there.
class SleepingTeam {
 public:
  explicit SleepingTeam(GompParallel parallel) : parallel_(parallel) {}

  bool begin(unsigned threads) {
    if (!there_is_room(threads)) return false;  // the runtime would end the process
    threads_ = threads;
    asleep_.store(1);
    began_ = pthread_create(&thread_, nullptr, start, this) == 0;
    return began_;
  }

  void end() {
    if (!began_) return;
    asleep_.store(0);
    asleep_.notify_all();
    pthread_join(thread_, nullptr);
    began_ = false;
  }

 private:
  static void* start(void* self) {
    auto* team = static_cast<SleepingTeam*>(self);
    team->parallel_(sleep, self, team->threads_, 0);
    return nullptr;
  }
  static void sleep(void* self) { static_cast<SleepingTeam*>(self)->asleep_.wait(1); }

  /// Whether so many threads can be started now.
  static bool there_is_room(unsigned threads) {
    sem_t done;
    sem_init(&done, 0, 0);
    pthread_t probes[kMostThreads + 1];
    unsigned made = 0;
    const auto wait = [](void* arg) -> void* {
      while (sem_wait(static_cast<sem_t*>(arg)) != 0) {
      }
      return nullptr;
    };
    while (made < threads && pthread_create(&probes[made], nullptr, wait, &done) == 0) ++made;
    for (unsigned i = 0; i < made; ++i) sem_post(&done);
    for (unsigned i = 0; i < made; ++i) pthread_join(probes[i], nullptr);
    sem_destroy(&done);
    return made == threads;
  }

  GompParallel parallel_;
  std::atomic<int> asleep_{0};
  unsigned threads_ = 0;
  pthread_t thread_{};
  bool began_ = false;
};

/// The longest that one of the process's threads was ready to run and did not, since the last time that it was asked.
class Waits {
 public:
  std::int64_t longest_ns() {
    std::int64_t longest = 0;
    DIR* folder = opendir("/proc/self/task");
    if (folder == nullptr) return 0;
    std::map<long, std::int64_t> now;
    while (const dirent* entry = readdir(folder)) {
      const long thread = std::strtol(entry->d_name, nullptr, 10);
      std::int64_t waited = 0;
      if (thread <= 0 || !read(thread, &waited)) continue;
      const auto before = before_.find(thread);
      if (before != before_.end()) longest = std::max(longest, waited - before->second);
      now.emplace(thread, waited);
    }
    closedir(folder);
    before_ = std::move(now);
    return longest;
  }

  /// Nothing is known of what went by.
  void forget() { before_.clear(); }

  static bool can_be_read() {
    std::int64_t waited = 0;
    return read(static_cast<long>(gettid()), &waited);
  }

 private:
  static bool read(long thread, std::int64_t* waited) {
    char path[64];
    std::snprintf(path, sizeof path, "/proc/self/task/%ld/schedstat", thread);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    char text[96];
    const ssize_t size = ::read(file, text, sizeof text - 1);
    close(file);
    if (size <= 0) return false;
    text[size] = 0;
    unsigned long long ran = 0, ready = 0;
    if (std::sscanf(text, "%llu %llu", &ran, &ready) != 2 || ran == 0) return false;
    *waited = static_cast<std::int64_t>(ready);
    return true;
  }

  std::map<long, std::int64_t> before_;
};

std::atomic<bool> asked_for{false};
std::atomic<std::int64_t> times{-1};  // -1: nobody watches
std::atomic<bool> now_crowded{false};

/// What the process used up to now.
struct Usage {
  long switches = 0;        ///< how often its threads were pushed off their cores
  std::int64_t cpu_ns = 0;  ///< of all of its threads
  std::int64_t at_ns = 0;
};

Usage usage_now() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto ns = [](const timeval& time) { return std::int64_t{time.tv_sec} * 1'000'000'000 + std::int64_t{time.tv_usec} * 1000; };
  return {usage.ru_nivcsw, ns(usage.ru_utime) + ns(usage.ru_stime), steady_clock().now_ns()};
}

int cpus() {
  cpu_set_t mask;
  return sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : 0;
}

/// Threads of a team that bring the runtime's count above the CPUs; 0: too many.
unsigned team_size() {
  const int there = cpus();
  const int more = there - at::get_num_threads() + 2;  // its first thread does not count
  return there == 0 || more > kMostThreads ? 0 : static_cast<unsigned>(std::max(more, 2));
}

[[noreturn]] void watch(GompParallel parallel) {
  SleepingTeam team(parallel);
  Waits waits;
  Crowding crowding;
  Usage before = usage_now();
  bool sleeping = false;
  for (;;) {
    const timespec pause{0, kLookNs};
    nanosleep(&pause, nullptr);
    const Usage now = usage_now();
    CrowdingLook seen;
    seen.now_ns = now.at_ns;
    seen.wall_ns = now.at_ns - before.at_ns;
    seen.left_ns = cpus() * seen.wall_ns - (now.cpu_ns - before.cpu_ns);
    if (sleeping || now.switches - before.switches >= kSwitchesOfInterest) {
      seen.waited_ns = waits.longest_ns();
    } else {
      waits.forget();
    }
    const bool crowded = crowding.look(seen);
    if (crowded && !sleeping) {
      const unsigned threads = team_size();
      sleeping = threads > 0 && team.begin(threads);
      if (sleeping) {
        log::info("others use the cores of this process: OpenMP threads sleep while they wait, for now (docs/openmp.md)");
      }
    } else if (!crowded && sleeping) {
      team.end();
      sleeping = false;
    }
    times.store(crowding.times(), std::memory_order_relaxed);
    now_crowded.store(sleeping, std::memory_order_relaxed);
    before = usage_now();  // what beginning and ending took is no sign of others
  }
}

void* watching(void* parallel) {
  try {
    watch(reinterpret_cast<GompParallel>(parallel));
  } catch (...) {  // no memory: nobody watches any more
  }
  return nullptr;
}

/// GNU's runtime, where it is the one that torch uses.
void* gnu_parallel() {
  if (dlsym(RTLD_DEFAULT, "__kmpc_fork_call") != nullptr) return nullptr;  // Intel's or LLVM's answers GNU's names as well
  void* torch = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD);
  if (torch == nullptr) return nullptr;
  void* found = dlsym(torch, "GOMP_parallel");
  dlclose(torch);
  return found;
}

}  // namespace

void watch_cores() noexcept {
  if (asked_for.exchange(true)) return;
  try {
    if (at::get_num_threads() < 2 || env::get(env::Id::kWaiting).value_or("auto") == "off" || !Waits::can_be_read()) return;
    void* parallel = gnu_parallel();
    if (parallel == nullptr || team_size() == 0) return;
    // Signals of the program are handled by its own threads.
    sigset_t all, own;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &own);
    pthread_t thread;
    const bool made = pthread_create(&thread, nullptr, watching, parallel) == 0;
    pthread_sigmask(SIG_SETMASK, &own, nullptr);
    if (!made) return;
    pthread_detach(thread);
    times.store(0);
    // A child has none of these threads, and nothing to watch before it computes with threads of its own.
    pthread_atfork(nullptr, nullptr, [] {
      times.store(-1);
      now_crowded.store(false);
    });
  } catch (const std::exception&) {  // no memory
  }
}

std::string crowded_cores_json() {
  const std::int64_t count = times.load(std::memory_order_relaxed);
  if (count < 0) return "{}";
  return "{\"times\": " + std::to_string(count) + ", \"now\": " + (now_crowded.load(std::memory_order_relaxed) ? "true" : "false") + "}";
}

}  // namespace ipexrun::preload
