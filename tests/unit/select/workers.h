// Threads for kernels::Parallel, one a part.
#pragma once

#include <thread>
#include <vector>

namespace ipexrun::preload {

inline void run_on_threads(void* /*context*/, int n, void (*fn)(void* arg, int i), void* arg) {
  std::vector<std::thread> workers;
  for (int i = 0; i < n; ++i) workers.emplace_back(fn, arg, i);
  for (std::thread& worker : workers) worker.join();
}

}  // namespace ipexrun::preload
