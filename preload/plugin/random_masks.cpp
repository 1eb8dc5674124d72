// Masks of dropout (and whatever else calls bernoulli_ with a number): torch draws them element by element on one thread, the same bits
// come vector by vector (kernels/bernoulli.h). Taken only after masks and states of both were found equal to the bit, and ours were drawn
// faster: on some processors torch draws them by MKL, another stream of another generator, and there it stays torch's.
#include "preload/plugin/random_masks.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/bernoulli_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>

#include "kernels/bernoulli.h"
#include "preload/plugin/answer.h"
#include "preload/plugin/dispatcher.h"
#include "preload/plugin/register.h"
#include "preload/plugin/tier_state.h"

namespace ipexrun::preload {
namespace {

constexpr std::int64_t kFew = 256;  // elements that take no time
std::atomic<std::uint64_t> taken{0};

/// The bits of 1 in this type, 0 where it is none of ours.
std::uint64_t one_in(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return 0x3f800000u;
    case at::kBFloat16:
      return 0x3f80u;
    case at::kHalf:
      return 0x3c00u;
    case at::kDouble:
      return std::uint64_t{0x3ff0} << 48;
    case at::kBool:
    case at::kByte:
    case at::kChar:
    case at::kShort:
    case at::kInt:
    case at::kLong:
      return 1;
    default:
      return 0;
  }
}

void draw(at::Tensor& self, double p, at::CPUGeneratorImpl& generator) {
  const std::scoped_lock lock(generator.mutex_);
  at::mt19937 engine = generator.engine();
  at::mt19937_data_pod data = engine.data();
  kernels::Twister twister{data.state_.data(), data.left_, data.next_};
  kernels::BernoulliArgs args;
  args.to = self.mutable_data_ptr();
  args.element_bytes = static_cast<int>(self.element_size());
  args.one = one_in(self.scalar_type());
  args.count = self.numel();
  args.p = p;
  kernels::bernoulli(args, &twister, tier()->options.isa);
  data.left_ = twister.left;
  data.next_ = twister.next;
  engine.set_data(data);
  generator.set_engine(engine);
}

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// Both draw from generators of their own: the program's stays where it is.
bool found_equal_and_faster() {
  constexpr std::int64_t kElements = 5000;
  constexpr int kTimes = 5;
  at::Generator theirs = at::detail::createCPUGenerator(20261123);
  at::Generator mine = at::detail::createCPUGenerator(20261123);
  double least[2] = {1e9, 1e9};
  for (int i = 0; i < kTimes; ++i) {
    const double p = 0.9 - 0.2 * i;
    at::Tensor masks[2];
    for (at::Tensor& mask : masks) mask = at::empty({kElements + i}, at::TensorOptions().dtype(i % 2 == 0 ? at::kFloat : at::kBFloat16));
    const double began = now_s();
    at::cpu::bernoulli_(masks[0], p, theirs);
    const double between = now_s();
    draw(masks[1], p, *at::check_generator<at::CPUGeneratorImpl>(mine));
    least[1] = std::min(least[1], now_s() - between);
    least[0] = std::min(least[0], between - began);
    if (std::memcmp(masks[0].const_data_ptr(), masks[1].const_data_ptr(), masks[0].nbytes()) != 0) return false;
  }
  const at::Tensor states[2] = {theirs.get_state(), mine.get_state()};
  if (states[0].nbytes() != states[1].nbytes()) return false;
  return std::memcmp(states[0].const_data_ptr(), states[1].const_data_ptr(), states[0].nbytes()) == 0 && least[1] < least[0];
}

bool trusted() {
  static const bool found = found_equal_and_faster();
  return found;
}

at::Tensor& bernoulli_(at::Tensor& self, double p, std::optional<at::Generator> generator) {
  if (!tier_enabled() || self.numel() < kFew || !(p >= 0 && p <= 1) || !plain(self) || !self.is_contiguous() ||
      one_in(self.scalar_type()) == 0 || (generator.has_value() && generator->defined() && generator->device().type() != at::kCPU) ||
      !trusted()) {
    return at::cpu::bernoulli_(self, p, std::move(generator));
  }
  auto* stream = at::get_generator_or_default<at::CPUGeneratorImpl>(generator, at::detail::getDefaultCPUGenerator());
  draw(self, p, *stream);
  taken.fetch_add(1, std::memory_order_relaxed);
  return self;
}

}  // namespace

std::uint64_t random_masks_taken() noexcept { return taken.load(std::memory_order_relaxed); }

void register_random_masks() {
  const TierOptions& options = tier()->options;
  if (!options.select.timing || !kernels::bernoulli_supported(options.isa)) return;
  if (has_stock_kernel("bernoulli_", "float")) cpu_library().impl("bernoulli_.float", TORCH_FN(bernoulli_));
}

}  // namespace ipexrun::preload
