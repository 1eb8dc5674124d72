// How a kernel gets its threads: from the caller. kernels/ starts no thread and holds no OpenMP pragma, so that the process keeps
// exactly the runtimes that stock torch has (preload passes torch's own pool, tests a std::thread pool).
#pragma once

namespace ipexrun::kernels {

struct Parallel {
  /// Workers that run() can use at once, at least 1.
  int threads = 1;
  /// Calls fn(arg, i) once for each i in [0, n), concurrently on up to `threads` workers, and returns when all are done.
  /// fn does not throw. Null = run serially.
  void (*run)(void* context, int n, void (*fn)(void* arg, int i), void* arg) = nullptr;
  void* context = nullptr;

  void operator()(int n, void (*fn)(void* arg, int i), void* arg) const {
    if (run != nullptr && threads > 1 && n > 1) {
      run(context, n, fn, arg);
    } else {
      for (int i = 0; i < n; ++i) fn(arg, i);
    }
  }
};

}  // namespace ipexrun::kernels
