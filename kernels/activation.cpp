// Shares the elements among the workers. Compiled for the base instruction set.
#include "kernels/activation.h"

#include "kernels/choose.h"
#include "kernels/dispatch.h"
#include "kernels/packed.h"

namespace ipexrun::kernels {
namespace {

/// Elements of which a worker takes a whole number: a cache line of bf16.
constexpr std::int64_t kUnit = 32;
/// Below this many elements a call is shorter than waking a second worker.
constexpr std::int64_t kSerialElements = 1 << 15;

struct Job {
  const ActivationArgs* args;
  const ActivationVariant* variant;
  std::int64_t parts;
};

void task(void* arg, int part) {
  const auto* job = static_cast<const Job*>(arg);
  ActivationArgs slice = *job->args;
  const std::int64_t units = ceil_div(slice.n, kUnit);
  const std::int64_t begin = units * part / job->parts * kUnit;
  const std::int64_t end = units * (part + 1) / job->parts * kUnit;
  slice.from = static_cast<const char*>(slice.from) + begin * bytes_of(slice.dtype);
  slice.to = static_cast<char*>(slice.to) + begin * bytes_of(slice.dtype);
  slice.n = (end < slice.n ? end : slice.n) - begin;
  job->variant->run(slice);
}

}  // namespace

void activation(const ActivationArgs& args, const Parallel& parallel, IsaSet isa) {
  if (args.n <= 0) return;
  const bool split = parallel.run != nullptr && parallel.threads > 1 && args.n > kSerialElements;
  Job job{&args, &choose(activation_variants(), isa), split ? parallel.threads : 1};
  parallel(static_cast<int>(job.parts), task, &job);
}

bool activation_supported(const ActivationArgs& args, IsaSet isa) {
  return args.n > 0 && (choose(activation_variants(), isa).not_worth & (1u << static_cast<int>(args.kind))) == 0;
}

const char* activation_variant(IsaSet isa) { return choose(activation_variants(), isa).name; }

}  // namespace ipexrun::kernels
