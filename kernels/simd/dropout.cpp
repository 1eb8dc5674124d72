// dropout, a block of 64 elements at a time; compiled once per instruction set, with IPEXRUN_KERNEL_ISA naming the namespace.
#include "kernels/simd/dropout.h"

#include "kernels/dropout_rule.h"
#include "kernels/simd/in_order.h"
#if defined(IPEXRUN_KERNEL_ISA_AVX512)
#include "kernels/simd/philox_avx512.h"
#else
#include "kernels/simd/philox_avx2.h"
#endif

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

constexpr std::int64_t kLanes = Lanes::kCount;
/// Vectors of counters in a block, and of elements.
constexpr int kCounterVectors = static_cast<int>(kDropoutCounters / kLanes);
constexpr int kVectors = static_cast<int>(kDropoutBlock / kLanes);

/// Vector v of a block holds elements v * kLanes and so on.
[[gnu::always_inline]] inline void decide(std::uint64_t counter, std::uint64_t seed, std::uint32_t least, Philox::Mask (&kept)[kVectors]) {
#pragma GCC unroll 2
  for (int part = 0; part < kCounterVectors; ++part) {
    Lanes::Vector word[4];
    Philox::words(counter + static_cast<std::uint64_t>(part * kLanes), seed, word);
#pragma GCC unroll 4
    for (int w = 0; w < 4; ++w) kept[w * kCounterVectors + part] = Philox::at_least(word[w], least);
  }
}

template <typename Row>
void run(const DropoutArgs& args) {
  using Element = typename Row::Element;
  const auto* from = static_cast<const Element*>(args.from);
  auto* to = static_cast<Element*>(args.to);
  const std::uint64_t threshold = dropout_threshold(args.p);
  // Nothing is kept: no word decides that, a scale of 0 and no mask do.
  const bool none = threshold > 0xffffffffu;
  const auto least = static_cast<std::uint32_t>(none ? 0 : threshold);
  const float scale = none ? 0.0f : dropout_scale(args.p);
  std::uint64_t counter = args.offset;
  std::int64_t i = 0;
  Philox::Mask kept[kVectors];
  for (; i + kDropoutBlock <= args.n; i += kDropoutBlock, counter += kDropoutCounters) {
    decide(counter, args.seed, least, kept);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t at = i + v * kLanes;
      Row::store(to + at, Floats::multiply(Row::load(from + at), Philox::chosen(kept[v], scale)));
      if (args.mask != nullptr) Philox::store(args.mask + at, kept[v]);
    }
  }
  if (i < args.n) {
    decide(counter, args.seed, least, kept);
    for (int v = 0; v < kVectors && i + v * kLanes < args.n; ++v) {
      const std::int64_t at = i + v * kLanes;
      const std::int64_t n = args.n - at < kLanes ? args.n - at : kLanes;
      Row::store_part(to + at, Floats::multiply(Row::load_part(from + at, n), Philox::chosen(kept[v], scale)), n);
      if (args.mask == nullptr) continue;
      std::uint8_t bytes[kLanes];
      Philox::store(bytes, kept[v]);
      __builtin_memcpy(args.mask + at, bytes, static_cast<std::size_t>(n));
    }
  }
  if (none && args.mask != nullptr) __builtin_memset(args.mask, 0, static_cast<std::size_t>(args.n));
}

template <typename Row>
void run_grad(const DropoutGradArgs& args) {
  using Element = typename Row::Element;
  const auto* from = static_cast<const Element*>(args.from);
  auto* to = static_cast<Element*>(args.to);
  const float scale = dropout_scale(args.p);
  std::int64_t i = 0;
  for (; i + kLanes <= args.n; i += kLanes) {
    Row::store(to + i, Floats::multiply(Row::load(from + i), Philox::chosen(Philox::load(args.mask + i), scale)));
  }
  if (i < args.n) {
    const std::int64_t n = args.n - i;
    std::uint8_t bytes[kLanes] = {};
    __builtin_memcpy(bytes, args.mask + i, static_cast<std::size_t>(n));
    Row::store_part(to + i, Floats::multiply(Row::load_part(from + i, n), Philox::chosen(Philox::load(bytes), scale)), n);
  }
}

}  // namespace

void dropout(const DropoutArgs& args) { (args.dtype == DType::kF32 ? run<InOrderF32> : run<InOrderBf16>)(args); }

void dropout_grad(const DropoutGradArgs& args) { (args.dtype == DType::kF32 ? run_grad<InOrderF32> : run_grad<InOrderBf16>)(args); }

}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
