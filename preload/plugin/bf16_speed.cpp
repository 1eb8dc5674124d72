#include "preload/plugin/bf16_speed.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "configs/base/log.h"
#include "kernels/linear.h"
#include "kernels/linear_f32.h"
#include "preload/select/clock.h"

namespace ipexrun::preload {
namespace {

constexpr std::int64_t kRows = 96, kDepth = 256, kColumns = 256;  ///< 12.6 MFLOP: 30 to 150 us; operands and packs take 0.5 MiB
constexpr int kRuns = 5;                                          ///< the least counts: a core that others use is slower now and then

template <class Run>
std::int64_t least_ns(Run run) {
  std::int64_t least = INT64_MAX;
  for (int i = 0; i <= kRuns; ++i) {
    const std::int64_t began = steady_clock().thread_cpu_ns();
    if (!run()) throw std::bad_alloc();
    if (i > 0) least = std::min(least, steady_clock().thread_cpu_ns() - began);
  }
  return std::max<std::int64_t>(least, 1);
}

/// For LinearArgs and LinearF32Args.
template <class Args>
Args product_of(const std::vector<float>& a, const c10::DataPtr& packed_b, std::vector<float>& c) {
  Args args;
  args.a = a.data();
  args.packed_b = packed_b.get();
  args.c = c.data();
  args.lda = args.k = kDepth;
  args.ldc = args.n = kColumns;
  args.m = kRows;
  return args;
}

double measured(IsaSet isa) {
  const kernels::Parallel alone;
  c10::Allocator& lines = *c10::GetCPUAllocator();  // aligned as packs have to be
  const std::vector<float> a(kRows * kDepth, 0.5f), b(kDepth * kColumns, 0.25f);
  std::vector<float> c(kRows * kColumns);
  const c10::DataPtr in_bf16 = lines.allocate(kernels::packed_b_bytes(kDepth, kColumns));
  const c10::DataPtr in_f32 = lines.allocate(kernels::packed_f32_bytes(kDepth, kColumns, false));
  kernels::pack_b({b.data(), kernels::DType::kF32, kDepth, kColumns, kColumns, 1}, in_bf16.get(), alone, isa);
  kernels::pack_f32({b.data(), false, kDepth, kColumns, kColumns, 1}, in_f32.get(), alone, isa);
  const auto rounded = product_of<kernels::LinearArgs>(a, in_bf16, c);
  const auto whole = product_of<kernels::LinearF32Args>(a, in_f32, c);
  const std::int64_t f32_ns = least_ns([&] { return kernels::linear_f32(whole, alone, isa); });
  const std::int64_t bf16_ns = least_ns([&] { return kernels::linear_bf16(rounded, alone, isa); });
  return static_cast<double>(f32_ns) / static_cast<double>(bf16_ns);
}

double look(IsaSet isa) {
  if (isa_has(isa, kIsaAmxBf16)) return 8.0;
  if (!isa_has(isa, kIsaAvx512Bf16)) return 0.0;
  try {
    return measured(isa);
  } catch (const std::exception&) {  // want of memory
    return 1.0;
  }
}

}  // namespace

double bf16_speed(IsaSet isa) {
  static const double speed = [isa] {
    const double found = look(isa);
    log::debug("products in bf16 are " + std::to_string(found) + " times as fast as in float32");
    return found;
  }();
  return speed;
}

}  // namespace ipexrun::preload
