// masked, a vector of fp32 at a time; compiled once per instruction set, with IPEXRUN_KERNEL_ISA naming the namespace.
#include "kernels/simd/masked.h"

#include "kernels/simd/in_order.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

using Vector = Floats::Vector;
constexpr std::int64_t kLanes = Lanes::kCount;

/// 1 or 0 in each lane.
[[gnu::always_inline]] inline Vector ones(const std::uint8_t* mask) {
#if defined(__AVX512F__)
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(mask))));
#else
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(mask))));
#endif
}

template <typename Row>
void run(const MaskedArgs& args) {
  using Element = typename Row::Element;
  const auto* from = static_cast<const Element*>(args.from);
  auto* to = static_cast<Element*>(args.to);
  const Vector scale = Floats::all(args.scale);
  std::int64_t i = 0;
  for (; i + kLanes <= args.n; i += kLanes) {
    Row::store(to + i, Floats::multiply(Row::load(from + i), Floats::multiply(ones(args.mask + i), scale)));
  }
  if (i < args.n) {
    std::uint8_t part[kLanes] = {};
    for (std::int64_t k = i; k < args.n; ++k) part[k - i] = args.mask[k];
    Row::store_part(to + i, Floats::multiply(Row::load_part(from + i, args.n - i), Floats::multiply(ones(part), scale)), args.n - i);
  }
}

}  // namespace

void masked(const MaskedArgs& args) { (args.dtype == DType::kF32 ? run<InOrderF32> : run<InOrderBf16>)(args); }

}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
