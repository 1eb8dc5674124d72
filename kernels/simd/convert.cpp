// convert, a vector at a time; compiled once per instruction set, with IPEXRUN_KERNEL_ISA naming the namespace.
#include "kernels/simd/convert.h"

#include "kernels/simd/in_order.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

using Vector = Floats::Vector;
constexpr std::int64_t kLanes = Lanes::kCount;

struct InOrderF16 {
  using Element = std::uint16_t;
#if defined(IPEXRUN_KERNEL_ISA_AVX512)
  [[gnu::always_inline]] static Vector load(const std::uint16_t* from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  [[gnu::always_inline]] static void store(std::uint16_t* to, Vector value) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
#else
  [[gnu::always_inline]] static Vector load(const std::uint16_t* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  [[gnu::always_inline]] static void store(std::uint16_t* to, Vector value) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
  }
#endif
  [[gnu::always_inline]] static Vector load_part(const std::uint16_t* from, std::int64_t n) {
    std::uint16_t halves[kLanes] = {};
    __builtin_memcpy(halves, from, static_cast<std::size_t>(n) * 2);
    return load(halves);
  }
  [[gnu::always_inline]] static void store_part(std::uint16_t* to, Vector value, std::int64_t n) {
    std::uint16_t halves[kLanes];
    store(halves, value);
    __builtin_memcpy(to, halves, static_cast<std::size_t>(n) * 2);
  }
};

template <typename From, typename To>
void run(const ConvertArgs& args) {
  const auto* from = static_cast<const typename From::Element*>(args.from);
  auto* to = static_cast<typename To::Element*>(args.to);
  std::int64_t i = 0;
  for (; i + 2 * kLanes <= args.n; i += 2 * kLanes) {
    const Vector first = From::load(from + i);
    const Vector second = From::load(from + i + kLanes);
    To::store(to + i, first);
    To::store(to + i + kLanes, second);
  }
  if (i + kLanes <= args.n) {
    To::store(to + i, From::load(from + i));
    i += kLanes;
  }
  if (i < args.n) To::store_part(to + i, From::load_part(from + i, args.n - i), args.n - i);
}

template <typename From>
void run_from(const ConvertArgs& args) {
  switch (args.to_format) {
    case Format::kF32:
      return run<From, InOrderF32>(args);
    case Format::kBf16:
      return run<From, InOrderBf16>(args);
    case Format::kF16:
      return run<From, InOrderF16>(args);
  }
}

}  // namespace

void convert(const ConvertArgs& args) {
  switch (args.from_format) {
    case Format::kF32:
      return run_from<InOrderF32>(args);
    case Format::kBf16:
      return run_from<InOrderBf16>(args);
    case Format::kF16:
      return run_from<InOrderF16>(args);
  }
}

}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
