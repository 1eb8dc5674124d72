// embedding_bag, a few vectors of columns at a time; compiled once per instruction set, with IPEXRUN_KERNEL_ISA naming the namespace.
//
// Rows lie anywhere in a table that is larger than the caches: while one is added, those of the coming indices are on their way, in the
// next bags as well.
#include "kernels/simd/embedding.h"

#if defined(IPEXRUN_KERNEL_ISA_AVX512)
#include "kernels/simd/floats_avx512.h"
#include "kernels/simd/halves_avx512.h"
#else
#include "kernels/simd/floats_avx2.h"
#include "kernels/simd/halves_avx2.h"
#endif
#include "kernels/bf16.h"
#include "kernels/dispatch.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

using Vector = Floats::Vector;
constexpr std::int64_t kLanes = Lanes::kCount;
constexpr std::int64_t kAhead = 16;  ///< indices
constexpr std::int64_t kLine = 64;
/// Vectors of a row at a time; the largest need a register for the place of each as well.
constexpr int kSumsAtOnce = 8;
constexpr int kMostAtOnce = 4;

struct F32 {
  using Element = float;
  [[gnu::always_inline]] static float one(float value) { return value; }
  [[gnu::always_inline]] static Vector load(const float* from) { return Floats::of_bits(Lanes::load(from)); }
  [[gnu::always_inline]] static Vector load_part(const float* from, std::int64_t n) {
    return Floats::of_bits(Lanes::load_part(from, Lanes::part(n * 4)));
  }
  [[gnu::always_inline]] static void store(float* to, Vector value) { Lanes::store(to, Floats::bits_of(value)); }
  [[gnu::always_inline]] static void store_part(float* to, Vector value, std::int64_t n) {
    Lanes::store_part(to, Floats::bits_of(value), Lanes::part(n * 4));
  }
  [[gnu::always_inline]] static Vector exact(Vector value) { return value; }
  [[gnu::always_inline]] static Vector rounded_sum(Vector sum, bool /*to_even*/) { return sum; }
  [[gnu::always_inline]] static float rounded(float value) { return value; }
};

struct Bf16 {
  using Element = std::uint16_t;
  [[gnu::always_inline]] static float one(std::uint16_t value) { return bf16_to_f32(value); }
  [[gnu::always_inline]] static Vector load(const std::uint16_t* from) { return Floats::of_bits(Halves::load(from)); }
  [[gnu::always_inline]] static Vector load_part(const std::uint16_t* from, std::int64_t n) {
    return Floats::of_bits(Halves::load_part(from, n));
  }
  /// Of numbers that are bf16 already, perhaps with something in the lower halves of their lanes.
  [[gnu::always_inline]] static void store(std::uint16_t* to, Vector value) { Halves::store_upper(to, Floats::bits_of(value)); }
  [[gnu::always_inline]] static void store_part(std::uint16_t* to, Vector value, std::int64_t n) {
    Halves::store_upper_part(to, Floats::bits_of(value), n);
  }
  /// A bf16 with nothing in the lower half.
  [[gnu::always_inline]] static Vector exact(Vector value) { return Floats::of_bits(Lanes::upper_half(Floats::bits_of(value))); }
  /// A NaN stays one: its highest bit below the exponent, which arithmetic sets, is kept.
  [[gnu::always_inline]] static Vector rounded_sum(Vector sum, bool to_even) {
    const Lanes::Vector bits = Floats::bits_of(sum);
    if (to_even) return Floats::of_bits(Lanes::rounded(bits));
    return Floats::pick(Floats::nan(sum), sum, Floats::of_bits(Lanes::add(bits, Lanes::all(0x8000))));
  }
  [[gnu::always_inline]] static float rounded(float value) { return bf16_to_f32(bf16_from_f32(value)); }
};

/// One bag: its indices are at [begin, end).
struct Bag {
  std::int64_t begin;
  std::int64_t end;
  std::int64_t number;
};

template <typename Kind, typename Index>
struct Walk {
  using Element = typename Kind::Element;
  const EmbeddingBagArgs& args;
  const Index* indices;
  const Element* table;
  const Element* weights;  ///< one element for all where `weight_step` is 0
  std::int64_t weight_step;

  /// Out of range or not: nothing is read.
  template <int kVectors>
  [[gnu::always_inline]] void fetch(std::int64_t i, std::int64_t column) const {
    if (i >= args.count) return;
    const auto index = static_cast<std::uint64_t>(static_cast<std::int64_t>(indices[i]));
    const auto row = static_cast<std::uint64_t>(args.row_stride) * index + static_cast<std::uint64_t>(column);
    const auto* at = reinterpret_cast<const char*>(reinterpret_cast<std::uintptr_t>(table) + row * sizeof(Element));
#pragma GCC unroll 8
    for (std::int64_t byte = 0; byte < kVectors * kLanes * static_cast<std::int64_t>(sizeof(Element)); byte += kLine)
      _mm_prefetch(at + byte, _MM_HINT_T0);
  }

  [[nodiscard]] [[gnu::always_inline]] bool inside(Index index) const {
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(index)) < static_cast<std::uint64_t>(args.rows);
  }

  /// `last`: elements of the last of the vectors.
  template <int kVectors>
  [[gnu::always_inline]] static void load(const Element* from, std::int64_t last, Vector (&to)[kVectors]) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors - 1; ++v) to[v] = Kind::load(from + v * kLanes);
    const Element* rest = from + (kVectors - 1) * kLanes;
    to[kVectors - 1] = last == kLanes ? Kind::load(rest) : Kind::load_part(rest, last);
  }

  template <int kVectors>
  [[gnu::always_inline]] static void store(Element* to, std::int64_t last, const Vector (&from)[kVectors]) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors - 1; ++v) Kind::store(to + v * kLanes, from[v]);
    Element* rest = to + (kVectors - 1) * kLanes;
    last == kLanes ? Kind::store(rest, from[kVectors - 1]) : Kind::store_part(rest, from[kVectors - 1], last);
  }

  /// False where an index is out of range. `size` counts what is not padding.
  template <int kVectors>
  [[gnu::always_inline]] bool add(const Bag& bag, std::int64_t column, std::int64_t last, std::int64_t* size) const {
    Vector sums[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[v] = Floats::all(0.0f);
    std::int64_t counted = 0;
    for (std::int64_t i = bag.begin; i < bag.end; ++i) {
      const Index index = indices[i];
      if (!inside(index)) return false;
      fetch<kVectors>(i + kAhead, column);
      if (index == static_cast<Index>(args.padding)) continue;
      ++counted;
      Vector row[kVectors];
      load(table + args.row_stride * index + column, last, row);
      const Vector weight = Floats::all(Kind::one(weights[i * weight_step]));
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[v] = Floats::fma(row[v], weight, sums[v]);
    }
    *size = counted;
    const bool to_even = args.padding >= 0;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[v] = Kind::rounded_sum(sums[v], to_even);
    if (args.mode == BagMode::kMean) {
      const Vector divisor = Floats::all(Kind::rounded(static_cast<float>(counted > 0 ? counted : 1)));
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[v] = Kind::rounded_sum(Floats::quotient(Kind::exact(sums[v]), divisor), true);
    }
    store(static_cast<Element*>(args.to) + bag.number * args.columns + column, last, sums);
    return true;
  }

  template <int kVectors>
  [[gnu::always_inline]] bool most(const Bag& bag, std::int64_t column, std::int64_t last, std::int64_t* size) const {
    Vector best[kVectors];
    Vector places[kVectors];  ///< their bits
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) best[v] = places[v] = Floats::all(0.0f);
    std::int64_t counted = 0;
    for (std::int64_t i = bag.begin; i < bag.end; ++i) {
      const Index index = indices[i];
      if (!inside(index)) return false;
      fetch<kVectors>(i + kAhead, column);
      if (index == static_cast<Index>(args.padding)) continue;
      Vector row[kVectors];
      load(table + args.row_stride * index + column, last, row);
      const Vector place = Floats::of_bits(Lanes::all(static_cast<std::int32_t>(index)));
      if (counted++ == 0) {
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
          best[v] = row[v];
          places[v] = place;
        }
        continue;
      }
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const Floats::Mask more = Floats::above(row[v], best[v]);
        best[v] = Floats::pick(more, row[v], best[v]);
        places[v] = Floats::pick(more, place, places[v]);
      }
    }
    *size = counted;
    const std::int64_t at = bag.number * args.columns + column;
    store(static_cast<Element*>(args.to) + at, last, best);
    Index* to = static_cast<Index*>(args.places) + at;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) store_places(to + v * kLanes, Floats::bits_of(places[v]), v + 1 < kVectors ? kLanes : last);
    return true;
  }

  [[gnu::always_inline]] static void store_places(std::int32_t* to, Lanes::Vector places, std::int64_t n) {
    n == kLanes ? Lanes::store(to, places) : Lanes::store_part(to, places, Lanes::part(n * 4));
  }
  [[gnu::always_inline]] static void store_places(std::int64_t* to, Lanes::Vector places, std::int64_t n) {
    if (n == kLanes) return Lanes::store_as_int64(to, places);
    std::int64_t all[kLanes];
    Lanes::store_as_int64(all, places);
    for (std::int64_t i = 0; i < n; ++i) to[i] = all[i];
  }

  template <int kVectors, bool kMost>
  [[gnu::always_inline]] bool block(const Bag& bag, std::int64_t column, std::int64_t last, std::int64_t* size) const {
    if constexpr (kMost) {
      return most<kVectors>(bag, column, last, size);
    } else {
      return add<kVectors>(bag, column, last, size);
    }
  }

  /// All columns of a bag: blocks of kFull vectors, then kRest of them.
  template <bool kMost, int kRest>
  [[gnu::always_inline]] bool columns(const Bag& bag, std::int64_t* size) const {
    constexpr int kFull = kMost ? kMostAtOnce : kSumsAtOnce;
    std::int64_t column = 0;
    for (; args.columns - column > kRest * kLanes; column += kFull * kLanes) {
      if (!block<kFull, kMost>(bag, column, kLanes, size)) return false;
    }
    return block<kRest, kMost>(bag, column, args.columns - column - (kRest - 1) * kLanes, size);
  }

  template <bool kMost, int kRest>
  bool run(std::int64_t bag_begin, std::int64_t bag_end) const {
    const auto* offsets = static_cast<const Index*>(args.offsets);
    auto* bag_of = static_cast<Index*>(args.bag_of);
    auto* sizes = static_cast<Index*>(args.sizes);
    for (std::int64_t i = bag_begin; i < bag_end; ++i) {
      const std::int64_t end = i + 1 < args.bags || args.has_end ? static_cast<std::int64_t>(offsets[i + 1]) : args.count;
      const Bag bag{offsets[i], end, i};
      if (bag.begin < 0 || end < bag.begin || end > args.count) return false;
      std::int64_t size = 0;
      if (!columns<kMost, kRest>(bag, &size)) return false;
      if (sizes != nullptr) sizes[i] = static_cast<Index>(size);
      if (bag_of != nullptr) {
        for (std::int64_t k = bag.begin; k < end; ++k) bag_of[k] = static_cast<Index>(i);
      }
    }
    return true;
  }

  /// Chosen once a call: a bag of one narrow row takes less time than choosing.
  bool run(std::int64_t begin, std::int64_t end) const {
    const bool most = args.mode == BagMode::kMax;
    switch ((args.columns + kLanes - 1) / kLanes % (most ? kMostAtOnce : kSumsAtOnce)) {
      case 1:
        return most ? run<true, 1>(begin, end) : run<false, 1>(begin, end);
      case 2:
        return most ? run<true, 2>(begin, end) : run<false, 2>(begin, end);
      case 3:
        return most ? run<true, 3>(begin, end) : run<false, 3>(begin, end);
      case 4:
        return run<false, 4>(begin, end);
      case 5:
        return run<false, 5>(begin, end);
      case 6:
        return run<false, 6>(begin, end);
      case 7:
        return run<false, 7>(begin, end);
      default:
        return most ? run<true, kMostAtOnce>(begin, end) : run<false, kSumsAtOnce>(begin, end);
    }
  }
};

template <typename Kind, typename Index>
bool bags(const EmbeddingBagArgs& args, std::int64_t bag_begin, std::int64_t bag_end) {
  using Element = typename Kind::Element;
  const Element one = sizeof(Element) == 4 ? static_cast<Element>(1) : static_cast<Element>(0x3f80);
  const auto* weights = static_cast<const Element*>(args.weights);
  const Walk<Kind, Index> walk{args, static_cast<const Index*>(args.indices), static_cast<const Element*>(args.table),
                               weights == nullptr ? &one : weights, weights == nullptr ? 0 : 1};
  return walk.run(bag_begin, bag_end);
}

}  // namespace

bool embedding_bags(const EmbeddingBagArgs& args, std::int64_t bag_begin, std::int64_t bag_end) {
  if (args.dtype == DType::kF32) {
    return args.wide ? bags<F32, std::int64_t>(args, bag_begin, bag_end) : bags<F32, std::int32_t>(args, bag_begin, bag_end);
  }
  return args.wide ? bags<Bf16, std::int64_t>(args, bag_begin, bag_end) : bags<Bf16, std::int32_t>(args, bag_begin, bag_end);
}

}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
