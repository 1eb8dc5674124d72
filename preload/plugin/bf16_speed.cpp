#include "preload/plugin/bf16_speed.h"

#include <algorithm>
#include <cstdint>
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

struct Lines {
  explicit Lines(std::size_t bytes) : held(bytes + kLine) {}
  void* data() {
    const auto at = reinterpret_cast<std::uintptr_t>(held.data());
    return held.data() + (kLine - at % kLine) % kLine;
  }
  static constexpr std::size_t kLine = 64;
  std::vector<unsigned char> held;
};

template <class Run>
std::int64_t least_ns(Run run) {
  std::int64_t least = INT64_MAX;
  for (int i = 0; i <= kRuns; ++i) {
    const std::int64_t began = steady_clock().thread_cpu_ns();
    if (!run()) return INT64_MAX;
    if (i > 0) least = std::min(least, steady_clock().thread_cpu_ns() - began);
  }
  return std::max<std::int64_t>(least, 1);
}

double measured(IsaSet isa) {
  const kernels::Parallel alone;
  const std::vector<float> a(kRows * kDepth, 0.5f), b(kDepth * kColumns, 0.25f);
  std::vector<float> c(kRows * kColumns);
  Lines in_bf16(kernels::packed_b_bytes(kDepth, kColumns)), in_f32(kernels::packed_f32_bytes(kDepth, kColumns, false));
  kernels::pack_b({b.data(), kernels::DType::kF32, kDepth, kColumns, kColumns, 1}, in_bf16.data(), alone, isa);
  kernels::pack_f32({b.data(), false, kDepth, kColumns, kColumns, 1}, in_f32.data(), alone, isa);
  kernels::LinearArgs rounded;
  rounded.a = a.data();
  rounded.c = c.data();
  rounded.packed_b = in_bf16.data();
  rounded.lda = rounded.k = kDepth;
  rounded.ldc = rounded.n = kColumns;
  rounded.m = kRows;
  kernels::LinearF32Args whole;
  whole.a = a.data();
  whole.c = c.data();
  whole.packed_b = in_f32.data();
  whole.lda = whole.k = kDepth;
  whole.ldc = whole.n = kColumns;
  whole.m = kRows;
  const std::int64_t f32_ns = least_ns([&] { return kernels::linear_f32(whole, alone, isa); });
  const std::int64_t bf16_ns = least_ns([&] { return kernels::linear_bf16(rounded, alone, isa); });
  return static_cast<double>(f32_ns) / static_cast<double>(bf16_ns);
}

double look(IsaSet isa) {
  if (isa_has(isa, kIsaAmxBf16)) return 8.0;
  if (!isa_has(isa, kIsaAvx512Bf16)) return 0.0;
  try {
    return measured(isa);
  } catch (const std::bad_alloc&) {
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
