// rotary, a vector of pairs at a time; compiled once per instruction set, with IPEXRUN_KERNEL_ISA naming the namespace.
#include "kernels/simd/rotary.h"

#include "kernels/rotary_rows.h"
#include "kernels/simd/in_order.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

using Vector = Floats::Vector;
constexpr std::int64_t kLanes = Lanes::kCount;

struct Pairs {
  Vector x;
  Vector y;
};

[[gnu::always_inline]] inline Pairs turned(const Pairs& p, Vector c, Vector s) {
  return {Floats::fms(p.x, c, Floats::multiply(p.y, s)), Floats::fma(p.y, c, Floats::multiply(p.x, s))};
}

/// Pairs from `i` on, `n` of them where not a whole vector.
template <typename Row>
struct InHalves {
  using Element = typename Row::Element;
  [[gnu::always_inline]] static Pairs load(const Element* from, std::int64_t half, std::int64_t i) {
    return {Row::load(from + i), Row::load(from + half + i)};
  }
  [[gnu::always_inline]] static void store(Element* to, std::int64_t half, std::int64_t i, const Pairs& p) {
    Row::store(to + i, p.x);
    Row::store(to + half + i, p.y);
  }
  [[gnu::always_inline]] static Pairs load_part(const Element* from, std::int64_t half, std::int64_t i, std::int64_t n) {
    return {Row::load_part(from + i, n), Row::load_part(from + half + i, n)};
  }
  [[gnu::always_inline]] static void store_part(Element* to, std::int64_t half, std::int64_t i, const Pairs& p, std::int64_t n) {
    Row::store_part(to + i, p.x, n);
    Row::store_part(to + half + i, p.y, n);
  }
};

struct InterleavedF32 {
  using Element = float;
  [[gnu::always_inline]] static Pairs split(Lanes::Vector a, Lanes::Vector b) {
    Lanes::split(a, b);
    return {Floats::of_bits(a), Floats::of_bits(b)};
  }
  [[gnu::always_inline]] static Pairs load(const float* from, std::int64_t, std::int64_t i) {
    return split(Lanes::load(from + 2 * i), Lanes::load(from + 2 * i + kLanes));
  }
  [[gnu::always_inline]] static void store(float* to, std::int64_t, std::int64_t i, const Pairs& p) {
    Lanes::Vector a = Floats::bits_of(p.x);
    Lanes::Vector b = Floats::bits_of(p.y);
    Lanes::join(a, b);
    Lanes::store(to + 2 * i, a);
    Lanes::store(to + 2 * i + kLanes, b);
  }
  /// Bytes of the first and of the second vector.
  [[gnu::always_inline]] static std::int64_t first(std::int64_t n) { return (2 * n < kLanes ? 2 * n : kLanes) * 4; }
  [[gnu::always_inline]] static Pairs load_part(const float* from, std::int64_t, std::int64_t i, std::int64_t n) {
    const std::int64_t bytes = first(n);
    const Lanes::Vector a = Lanes::load_part(from + 2 * i, Lanes::part(bytes));
    return split(a, bytes < 8 * n ? Lanes::load_part(from + 2 * i + kLanes, Lanes::part(8 * n - bytes)) : Lanes::zero());
  }
  [[gnu::always_inline]] static void store_part(float* to, std::int64_t, std::int64_t i, const Pairs& p, std::int64_t n) {
    const std::int64_t bytes = first(n);
    Lanes::Vector a = Floats::bits_of(p.x);
    Lanes::Vector b = Floats::bits_of(p.y);
    Lanes::join(a, b);
    Lanes::store_part(to + 2 * i, a, Lanes::part(bytes));
    if (bytes < 8 * n) Lanes::store_part(to + 2 * i + kLanes, b, Lanes::part(8 * n - bytes));
  }
};

struct InterleavedBf16 {
  using Element = std::uint16_t;
  [[gnu::always_inline]] static Pairs widened(Lanes::Vector pairs) {
    return {Floats::of_bits(Lanes::shift_left_16(pairs)), Floats::of_bits(Lanes::upper_half(pairs))};
  }
  [[gnu::always_inline]] static Lanes::Vector narrowed(const Pairs& p) {
    return Lanes::halves(Lanes::shift_right_16(Lanes::rounded(Floats::bits_of(p.x))), Lanes::rounded(Floats::bits_of(p.y)));
  }
  [[gnu::always_inline]] static Pairs load(const std::uint16_t* from, std::int64_t, std::int64_t i) {
    return widened(Lanes::load(from + 2 * i));
  }
  [[gnu::always_inline]] static void store(std::uint16_t* to, std::int64_t, std::int64_t i, const Pairs& p) {
    Lanes::store(to + 2 * i, narrowed(p));
  }
  [[gnu::always_inline]] static Pairs load_part(const std::uint16_t* from, std::int64_t, std::int64_t i, std::int64_t n) {
    return widened(Lanes::load_part(from + 2 * i, Lanes::part(4 * n)));
  }
  [[gnu::always_inline]] static void store_part(std::uint16_t* to, std::int64_t, std::int64_t i, const Pairs& p, std::int64_t n) {
    Lanes::store_part(to + 2 * i, narrowed(p), Lanes::part(4 * n));
  }
};

template <typename Layout, typename Table>
void rows(const RotaryArgs& args, bool heads_outside, std::int64_t row_begin, std::int64_t row_end) {
  using Element = typename Layout::Element;
  using Entry = typename Table::Element;
  const std::int64_t half = args.rotated / 2;
  const Vector sign = Floats::all(args.inverse ? -1.0f : 1.0f);
  RotaryRows row(args, heads_outside, row_begin);
  for (std::int64_t index = row_begin; index < row_end; ++index, row.next()) {
    const Element* from = static_cast<const Element*>(args.from) + row.from();
    Element* to = static_cast<Element*>(args.to) + row.to();
    const Entry* c = static_cast<const Entry*>(args.cos) + row.table();
    const Entry* s = static_cast<const Entry*>(args.sin) + row.table();
    std::int64_t i = 0;
    for (; i + kLanes <= half; i += kLanes) {
      Layout::store(to, half, i, turned(Layout::load(from, half, i), Table::load(c + i), Floats::multiply(sign, Table::load(s + i))));
    }
    if (i < half) {
      const std::int64_t n = half - i;
      const Vector cosine = Table::load_part(c + i, n);
      const Vector sine = Floats::multiply(sign, Table::load_part(s + i, n));
      Layout::store_part(to, half, i, turned(Layout::load_part(from, half, i, n), cosine, sine), n);
    }
    if (args.rotated < args.depth && from != to) {
      __builtin_memcpy(to + args.rotated, from + args.rotated, static_cast<std::size_t>(args.depth - args.rotated) * sizeof(Element));
    }
  }
}

template <typename Layout>
void rows_of(const RotaryArgs& args, bool heads_outside, std::int64_t row_begin, std::int64_t row_end) {
  (args.table_dtype == DType::kF32 ? rows<Layout, InOrderF32> : rows<Layout, InOrderBf16>)(args, heads_outside, row_begin, row_end);
}

}  // namespace

void rotary(const RotaryArgs& args, bool heads_outside, std::int64_t row_begin, std::int64_t row_end) {
  const bool f32 = args.dtype == DType::kF32;
  if (args.pairs == RotaryPairs::kHalves) {
    (f32 ? rows_of<InHalves<InOrderF32>> : rows_of<InHalves<InOrderBf16>>)(args, heads_outside, row_begin, row_end);
  } else {
    (f32 ? rows_of<InterleavedF32> : rows_of<InterleavedBf16>)(args, heads_outside, row_begin, row_end);
  }
}

}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
