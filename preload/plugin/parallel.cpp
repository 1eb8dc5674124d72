// The only file compiled with -fopenmp: at::parallel_for is an inline function with a pragma in it. libgomp is not linked; GOMP_*
// resolves to the runtime that libtorch_cpu brings, so the process has exactly one.
#include "preload/plugin/parallel.h"

#include <ATen/Parallel.h>

namespace ipexrun::preload {
namespace {

void run(void* /*context*/, int n, void (*fn)(void* arg, int i), void* arg) {
  at::parallel_for(0, n, 1, [fn, arg](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) fn(arg, static_cast<int>(i));
  });
}

}  // namespace

kernels::Parallel torch_pool() {
  kernels::Parallel pool;
  if (at::in_parallel_region()) return pool;
  pool.threads = at::get_num_threads();
  pool.run = run;
  return pool;
}

}  // namespace ipexrun::preload
