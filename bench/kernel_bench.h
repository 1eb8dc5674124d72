// What the C++ benches of kernels/ share: clocks, memory that rotates, a pool of threads, and what the machine gives at most.
//
// A benchmark calls the kernel and its limit (products of registers, or a copy) in turn, so that both meet the same machine; "of_limit"
// is the median of the ratios of neighbours. One thread is timed by its CPU time, since being descheduled on a busy machine is not the
// kernel's; several by the clock. The instruction sets are those of the process: IPEXRUN_MAX_ISA caps them.
#pragma once

#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "configs/base/isa.h"
#include "kernels/bf16.h"
#include "kernels/dtype.h"
#include "kernels/parallel.h"

#if defined(__x86_64__)
#include "kernels/amx/tile.h"
#endif

namespace ipexrun::bench {

using kernels::DType;
using kernels::Parallel;

inline double now(clockid_t clock = CLOCK_THREAD_CPUTIME_ID) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0.0 : values[values.size() / 2];
}

inline std::string name_of(DType dtype) { return dtype == DType::kF32 ? "float32" : "bfloat16"; }

struct Free {
  void operator()(void* p) const { std::free(p); }
};
using Memory = std::unique_ptr<char, Free>;

inline Memory zeros(std::size_t bytes) {
  const std::size_t rounded = (bytes + 63) / 64 * 64;
  Memory memory(static_cast<char*>(std::aligned_alloc(64, rounded)));
  if (memory == nullptr) {
    std::fprintf(stderr, "no memory for %zu bytes\n", rounded);
    std::exit(1);
  }
  std::memset(memory.get(), 0, rounded);
  return memory;
}

/// `n` numbers in [-1, 1).
inline Memory numbers(std::int64_t n, DType dtype) {
  Memory memory = zeros(static_cast<std::size_t>(n * kernels::bytes_of(dtype)));
  std::uint32_t state = 1;
  for (std::int64_t i = 0; i < n; ++i) {
    state = state * 1664525u + 1013904223u;
    const float value = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-31f;
    if (dtype == DType::kF32) {
      reinterpret_cast<float*>(memory.get())[i] = value;
    } else {
      reinterpret_cast<std::uint16_t*>(memory.get())[i] = kernels::bf16_from_f32(value);
    }
  }
  return memory;
}

/// Workers that stay; between calls they sleep after some microseconds, so that what else runs here has the core, unless they stay `awake`.
class Pool {
 public:
  explicit Pool(int threads, bool awake = false) : awake_(awake) {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
  }
  ~Pool() {
    n_ = -1;
    wake();
    for (std::thread& worker : workers_) worker.join();
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  [[nodiscard]] int threads() const { return static_cast<int>(workers_.size()) + 1; }
  Parallel parallel() { return {threads(), &run, this}; }

 private:
  static void run(void* context, int n, void (*fn)(void* arg, int i), void* arg) {
    auto& pool = *static_cast<Pool*>(context);
    pool.n_ = n;
    pool.fn_ = fn;
    pool.arg_ = arg;
    pool.busy_.store(static_cast<int>(pool.workers_.size()));
    pool.wake();
    pool.share(0);
    for (int left = pool.busy_.load(); left != 0; left = pool.busy_.load()) pool.wait_for_change(pool.busy_, left);
  }

  void wait_for_change(std::atomic<int>& value, int old) const {
    for (int i = 0; awake_ || i < 5000; i += awake_ ? 0 : 1) {
      if (value.load(std::memory_order_acquire) != old) return;
    }
    value.wait(old);
  }

  void wake() {
    call_.fetch_add(1);
    call_.notify_all();
  }

  void share(int who) {
    for (int i = who; i < n_; i += threads()) fn_(arg_, i);
  }

  void work(int who) {
    for (int seen = 0;; ++seen) {
      wait_for_change(call_, seen);
      if (n_ < 0) return;
      share(who);
      if (busy_.fetch_sub(1) == 1) busy_.notify_all();
    }
  }

  const bool awake_;
  std::atomic<int> call_{0};
  std::atomic<int> busy_{0};
  int n_ = 0;
  void (*fn_)(void* arg, int i) = nullptr;
  void* arg_ = nullptr;
  std::vector<std::thread> workers_;
};

/// Calls fn(i) for each i < n on the workers.
template <typename Function>
void on_all(const Parallel& parallel, int n, Function fn) {
  parallel(
      n, [](void* arg, int i) { (*static_cast<Function*>(arg))(i); }, &fn);
}

/// About a tenth of a millisecond of AMX products of zeroed registers. Returns how many operations these are; 0 without AMX.
inline double amx_products() {
#if defined(__x86_64__)
  using namespace kernels::amx;  // NOLINT
  if (!isa_has(isa_of_process(), kIsaAmxBf16)) return 0;
  constexpr int kRounds = 5000;
  tile_configure(whole_tiles());  // zeroes all tiles
  for (int i = 0; i < kRounds; ++i) {
    tile_multiply<0, 4, 6>();
    tile_multiply<1, 4, 7>();
    tile_multiply<2, 5, 6>();
    tile_multiply<3, 5, 7>();
  }
  tile_release();
  return kRounds * 4.0 * (2.0 * 16 * 16 * 32);
#else
  return 0;
#endif
}

/// The same with fused multiply-adds of 16 fp32, in 12 chains; 0 without AVX-512.
inline double fma_products() {
#if defined(__x86_64__)
  if (!isa_has(isa_of_process(), kIsaAvx512)) return 0;
  std::int64_t rounds = 50000;
  const double operations = static_cast<double>(rounds) * 12 * 16 * 2;
#define IPEXRUN_ZERO(r) "vpxorq %%zmm" #r ", %%zmm" #r ", %%zmm" #r "\n"
#define IPEXRUN_FMA(r) "vfmadd231ps %%zmm12, %%zmm13, %%zmm" #r "\n"
#define IPEXRUN_TWELVE(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(10) M(11)
  __asm__ volatile(IPEXRUN_TWELVE(IPEXRUN_ZERO) IPEXRUN_ZERO(12) IPEXRUN_ZERO(13)  //
                   "1:\n" IPEXRUN_TWELVE(IPEXRUN_FMA)                              //
                   "dec %0\n jnz 1b\n vzeroupper\n"
                   : "+r"(rounds)
                   :
                   : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",
                     "xmm13", "xmm14", "xmm15");
#undef IPEXRUN_TWELVE
#undef IPEXRUN_FMA
#undef IPEXRUN_ZERO
  return operations;
#else
  return 0;
#endif
}

/// One turn of something: its calls count on where the last turn stopped. Returns how much it did (operations, bytes).
using Turn = std::function<double(std::size_t call)>;

/// What the machine gives on all threads: `products` once on each.
inline Turn products_limit(const Parallel& parallel, double (*products)()) {
  return [&parallel, products](std::size_t) {
    std::vector<double> done(static_cast<std::size_t>(parallel.threads));
    on_all(parallel, parallel.threads, [&](int i) { done[static_cast<std::size_t>(i)] = products(); });
    double sum = 0;
    for (const double one : done) sum += one;
    return sum;
  };
}

/// What main() takes from the command line before google-benchmark does.
struct Options {
  int threads = 1;
  int rounds = 31;                                 ///< turns of the kernel and of its limit, each
  double turn_seconds = 2e-3;                      ///< at least, by several calls where one is shorter
  std::size_t cold_bytes = std::size_t{16} << 20;  ///< that operands rotate over: beyond L2, within L3 with as much for a limit
  bool smoke = false;
};

/// So many buffers of `bytes` that they rotate over `rotation`; one, which stays in cache, where that is 0.
inline std::size_t copies_of(std::size_t bytes, std::size_t rotation) {
  return rotation == 0 ? 1 : std::max<std::size_t>(2, rotation / std::max<std::size_t>(bytes, 1));
}

/// Plain copies of half of `bytes`, which is then what is read and written, shared by the workers. `rotation` as above.
inline Turn copy_limit(const Parallel& parallel, std::size_t bytes, std::size_t rotation) {
  struct Sides {
    std::vector<Memory> from, to;
  };
  const auto sides = std::make_shared<Sides>();
  const std::size_t half = bytes / 2;
  for (std::size_t i = 0; i < copies_of(bytes, rotation); ++i) {
    sides->from.push_back(zeros(half));
    sides->to.push_back(zeros(half));
  }
  return [&parallel, half, bytes, sides](std::size_t call) {
    const std::size_t which = call % sides->from.size();
    const auto workers = static_cast<std::size_t>(parallel.threads);
    const std::size_t part = (half / workers + 63) / 64 * 64;
    on_all(parallel, parallel.threads, [&](int i) {
      const std::size_t begin = std::min(half, static_cast<std::size_t>(i) * part);
      std::memcpy(sides->to[which].get() + begin, sides->from[which].get() + begin, std::min(part, half - begin));
    });
    return static_cast<double>(bytes);
  };
}

/// One benchmark: `work` and `limit` in turn. Counters: `rate`/s, `limit`/s and `of_limit`, the latter two where there is a limit.
inline void race(benchmark::State& state, const Options& options, const std::string& rate, const Turn& work, const Turn& limit) {
  struct Side {
    const Turn& turn;
    std::size_t calls = 0;
    std::size_t batch = 1;
    std::vector<double> rates{};
    double seconds = 0;  ///< of a call, in the last turn

    void run(clockid_t clock) {
      double done = 0;
      const double start = now(clock);
      for (std::size_t i = 0; i < batch; ++i) done += turn(calls++);
      const double total = std::max(now(clock) - start, 1e-9);
      seconds = total / static_cast<double>(batch);
      rates.push_back(done / total);
    }
  };
  const clockid_t clock = options.threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
  Side ours{work};
  Side rival{limit};
  for (Side* side : {&ours, &rival}) {
    side->run(clock);  // page faults, scratch
    side->run(clock);
    side->batch = static_cast<std::size_t>(std::clamp(options.turn_seconds / side->seconds, 1.0, 1e5));
    side->rates.clear();
  }
  std::vector<double> ratios;
  for (auto _ : state) {
    ours.run(clock);
    rival.run(clock);
    state.SetIterationTime(ours.seconds);
    if (rival.rates.back() > 0) ratios.push_back(ours.rates.back() / rival.rates.back());
  }
  using benchmark::Counter;
  state.counters[rate + "/s"] = Counter(median(ours.rates));
  if (!ratios.empty()) {
    state.counters["limit/s"] = Counter(median(rival.rates));
    state.counters["of_limit"] = Counter(median(ratios));
  }
}

/// A benchmark of so many rounds; `make` runs when it is its turn and calls race().
inline void add(const Options& options, const std::string& name, std::function<void(benchmark::State&)> make) {
  benchmark::RegisterBenchmark(name.c_str(), std::move(make))->Iterations(options.rounds)->UseManualTime()->Unit(benchmark::kMicrosecond);
}

/// main() of a bench: --threads N, --rounds N, --cold-mib N, --smoke (small, to see that it runs); the rest is google-benchmark's.
inline int main_of(int argc, char** argv, const std::function<void(const Options&, const Parallel&)>& fill) {
  Options options;
  std::vector<char*> rest{argv[0]};
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--smoke") {
      options.smoke = true;
      options.rounds = 2;
      options.turn_seconds = 0;
      options.cold_bytes = std::size_t{1} << 20;
    } else if ((word == "--threads" || word == "--rounds") && i + 1 < argc) {
      (word == "--threads" ? options.threads : options.rounds) = std::max(1, std::atoi(argv[++i]));
    } else if (word == "--cold-mib" && i + 1 < argc) {
      options.cold_bytes = static_cast<std::size_t>(std::max(1, std::atoi(argv[++i]))) << 20;
    } else {
      rest.push_back(argv[i]);
    }
  }
  int left = static_cast<int>(rest.size());
  benchmark::Initialize(&left, rest.data());
  if (benchmark::ReportUnrecognizedArguments(left, rest.data())) return 2;
  benchmark::AddCustomContext("isa", std::string(level_name(isa_of_process())));  // asks for AMX, before there are threads
  benchmark::AddCustomContext("threads", std::to_string(options.threads));
  Pool pool(options.threads);
  const Parallel parallel = pool.parallel();
  fill(options, parallel);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

/// Ends the program when a kernel says that it failed.
inline void check(bool ok) {
  if (ok) return;
  std::fprintf(stderr, "the kernel reports failure\n");
  std::exit(1);
}

}  // namespace ipexrun::bench
