// batch_norm, vectors of channels over groups of rows; compiled once per instruction set, with IPEXRUN_KERNEL_ISA naming the namespace.
//
// What belongs to a channel is loaded once for the rows of a group, and what is summed over them is stored once.
#include "kernels/simd/batch_norm.h"

#include "kernels/simd/in_order.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

using Vector = Floats::Vector;
constexpr std::int64_t kLanes = Lanes::kCount;
constexpr std::int64_t kSummed = 128;  // rows that are added up in fp32
constexpr int kMomentRows = 8;         // of a group: each is a stream of memory of its own
constexpr int kRows = 4;               // likewise, where two or three images are read

#if defined(__AVX512BF16__)
/// Rounded by the instruction made for it, which takes numbers below the smallest normal one as zeros.
struct RowBf16 : InOrderBf16 {
  [[gnu::always_inline]] static __m256i narrow(Vector value) { return (__m256i)_mm512_cvtneps_pbh(value); }
  [[gnu::always_inline]] static void store(std::uint16_t* to, Vector value) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), narrow(value));
  }
  [[gnu::always_inline]] static void store_part(std::uint16_t* to, Vector value, std::int64_t n) {
    _mm256_mask_storeu_epi16(to, static_cast<__mmask16>((1u << n) - 1), narrow(value));
  }
};
#else
using RowBf16 = InOrderBf16;
#endif

/// fn(i, part): for whole vectors of channels with Part<true>, then for what is left.
template <bool kIsWhole>
struct Part {
  static constexpr bool kWhole = kIsWhole;
  std::int64_t n;

  template <typename Row, typename Element>
  [[gnu::always_inline]] Vector load(const Element* from) const {
    if constexpr (kWhole) return Row::load(from);
    return Row::load_part(from, n);
  }
  [[gnu::always_inline]] Vector floats(const float* from) const { return load<InOrderF32>(from); }
  template <typename Row, typename Element>
  [[gnu::always_inline]] void store(Element* to, Vector value) const {
    if constexpr (kWhole) {
      Row::store(to, value);
    } else {
      Row::store_part(to, value, n);
    }
  }
};

template <typename Function>
[[gnu::always_inline]] inline void each_vector(std::int64_t channels, const Function& fn) {
  std::int64_t i = 0;
  for (; i + kLanes <= channels; i += kLanes) fn(i, Part<true>{kLanes});
  if (i < channels) fn(i, Part<false>{channels - i});
}

/// Wide rows of images that no cache holds are taken one by one: a group of them is so many streams, of which processors look ahead in none
/// (bf16, 256 channels of 56 x 56, 8 images: 4.7 ms forward and 7.9 backward in groups, 2.7 and 4.7 one by one; 64 channels the other way
/// round, 0.26 and 0.52 to 0.37 and 0.70).
template <typename Args>
bool in_groups(const Args& args) {
  return args.channels <= 64 || args.rows * args.channels * bytes_of(args.dtype) < std::int64_t{4} << 20;
}

/// Runs group(row) over [begin, end) for kGroup rows, then for one at a time; or always for one.
template <int kGroup, typename Function>
[[gnu::always_inline]] inline void each_group(bool groups, std::int64_t begin, std::int64_t end, const Function& group) {
  std::int64_t row = begin;
  for (; groups && row + kGroup <= end; row += kGroup) group.template operator()<kGroup>(row);
  for (; row < end; ++row) group.template operator()<1>(row);
}

/// Runs add(row, rows) over blocks of rows, and adds the two rows of sums in `scratch` that it makes to `sums` after each.
template <typename Function>
[[gnu::always_inline]] inline void summed(std::int64_t channels, std::int64_t begin, std::int64_t end, double* sums, float* scratch,
                                          const Function& add) {
  for (std::int64_t i = 0; i < 2 * channels; ++i) sums[i] = 0;
  for (std::int64_t row = begin; row < end; row += kSummed) {
    for (std::int64_t i = 0; i < 2 * channels; ++i) scratch[i] = 0;
    add(row, row + kSummed < end ? row + kSummed : end);
    for (std::int64_t i = 0; i < 2 * channels; ++i) sums[i] += static_cast<double>(scratch[i]);
  }
}

template <typename Row>
void moments(const PivotedMomentsArgs& args, std::int64_t begin, std::int64_t end, double* sums, float* scratch) {
  const auto* from = static_cast<const typename Row::Element*>(args.from);
  const std::int64_t channels = args.channels;
  const bool groups = in_groups(args);
  summed(
      channels, begin, end, sums, scratch, [&](std::int64_t first, std::int64_t last) __attribute__((always_inline)) {
        each_group<kMomentRows>(
            groups, first, last, [&]<int kCount>(std::int64_t row) __attribute__((always_inline)) {
              each_vector(
                  channels, [&](std::int64_t i, auto part) __attribute__((always_inline)) {
                    const Vector middle = part.floats(args.pivots + i);
                    Vector sum = part.floats(scratch + i);
                    Vector square = part.floats(scratch + channels + i);
                    Vector x[kCount];
#pragma GCC unroll 8
                    for (int r = 0; r < kCount; ++r)
                      x[r] = Floats::subtract(part.template load<Row>(from + (row + r) * channels + i), middle);
                    Vector own = x[0];
                    Vector own_square = Floats::multiply(x[0], x[0]);
#pragma GCC unroll 8
                    for (int r = 1; r < kCount; ++r) {
                      own = Floats::add(own, x[r]);
                      own_square = Floats::fma(x[r], x[r], own_square);
                    }
                    sum = Floats::add(sum, own);
                    square = Floats::add(square, own_square);
                    part.template store<InOrderF32>(scratch + i, sum);
                    part.template store<InOrderF32>(scratch + channels + i, square);
                  });
            });
      });
}

template <typename Row, bool kRelu, bool kResidual>
void norm(const BatchNormArgs& args, std::int64_t begin, std::int64_t end) {
  using Element = typename Row::Element;
  const auto* from = static_cast<const Element*>(args.from);
  const auto* residual = static_cast<const Element*>(args.residual);
  auto* to = static_cast<Element*>(args.to);
  const std::int64_t channels = args.channels;
  const bool groups = in_groups(args);
  each_group<kRows>(
      groups, begin, end, [&]<int kCount>(std::int64_t row) __attribute__((always_inline)) {
        each_vector(
            channels, [&](std::int64_t i, auto part) __attribute__((always_inline)) {
              const Vector mean = part.floats(args.mean + i);
              const Vector scale = part.floats(args.scale + i);
              const Vector shift = part.floats(args.shift + i);
#pragma GCC unroll 4
              for (int r = 0; r < kCount; ++r) {
                const std::int64_t at = (row + r) * channels + i;
                Vector y = Floats::fma(Floats::subtract(part.template load<Row>(from + at), mean), scale, shift);
                if constexpr (kResidual) y = Floats::add(y, part.template load<Row>(residual + at));
                if constexpr (kRelu) y = Floats::at_least(Floats::all(0.0f), y);
                part.template store<Row>(to + at, y);
              }
            });
      });
}

/// How the gradient in front of relu is found.
enum class Mask { kNone, kFromResult, kComputed };

/// What both passes of the gradient compute of an element: x - mean, and the gradient in front of relu.
template <typename Row, Mask kMask>
struct Masked {
  using Element = typename Row::Element;
  explicit Masked(const BatchNormGradArgs& given)
      : args(given),
        from(static_cast<const Element*>(given.from)),
        grad(static_cast<const Element*>(given.grad)),
        result(static_cast<const Element*>(given.result)) {}

  struct Channels {
    Vector mean;
    Vector scale;  ///< and shift: where the mask is computed
    Vector shift;
  };
  template <typename P>
  [[gnu::always_inline]] Channels channels(std::int64_t i, const P& part) const {
    const Vector mean = part.floats(args.mean + i);
    if constexpr (kMask != Mask::kComputed) return {mean, mean, mean};
    return {mean, part.floats(args.scale + i), part.floats(args.shift + i)};
  }

  struct Place {
    Vector centered;
    Vector gradient;
  };
  template <typename P>
  [[gnu::always_inline]] Place at(std::int64_t i, const P& part, const Channels& of) const {
    const Vector centered = Floats::subtract(part.template load<Row>(from + i), of.mean);
    const Vector g = part.template load<Row>(grad + i);
    if constexpr (kMask == Mask::kNone) return {centered, g};
    Vector y;
    if constexpr (kMask == Mask::kFromResult) {
      y = part.template load<Row>(result + i);
    } else {
      y = Floats::fma(centered, of.scale, of.shift);
    }
    const Vector zero = Floats::all(0.0f);
    return {centered, Floats::pick(Floats::above_or_nan(y, zero), g, zero)};
  }

  const BatchNormGradArgs& args;
  const Element* from;
  const Element* grad;
  const Element* result;
};

template <typename Row, Mask kMask>
void grad_sums(const BatchNormGradArgs& args, std::int64_t begin, std::int64_t end, double* sums, float* scratch) {
  const Masked<Row, kMask> masked(args);
  const std::int64_t channels = args.channels;
  const bool groups = in_groups(args);
  summed(
      channels, begin, end, sums, scratch, [&](std::int64_t first, std::int64_t last) __attribute__((always_inline)) {
        each_group<kRows>(
            groups, first, last, [&]<int kCount>(std::int64_t row) __attribute__((always_inline)) {
              each_vector(
                  channels, [&](std::int64_t i, auto part) __attribute__((always_inline)) {
                    const auto of = masked.channels(i, part);
                    Vector sum = Floats::all(0.0f);
                    Vector product = sum;
#pragma GCC unroll 4
                    for (int r = 0; r < kCount; ++r) {
                      const std::int64_t at = (row + r) * channels + i;
                      const auto [centered, g] = masked.at(at, part, of);
                      sum = Floats::add(sum, g);
                      product = Floats::fma(g, centered, product);
                    }
                    part.template store<InOrderF32>(scratch + i, Floats::add(part.floats(scratch + i), sum));
                    part.template store<InOrderF32>(scratch + channels + i, Floats::add(part.floats(scratch + channels + i), product));
                  });
            });
      });
}

template <typename Row, Mask kMask, bool kBeforeRelu>
void grad(const BatchNormGradArgs& args, std::int64_t begin, std::int64_t end) {
  using Element = typename Row::Element;
  const Masked<Row, kMask> masked(args);
  auto* to = static_cast<Element*>(args.to);
  auto* before = static_cast<Element*>(args.before_relu);
  const std::int64_t channels = args.channels;
  const bool groups = in_groups(args);
  each_group<kRows>(
      groups, begin, end, [&]<int kCount>(std::int64_t row) __attribute__((always_inline)) {
        each_vector(
            channels, [&](std::int64_t i, auto part) __attribute__((always_inline)) {
              const auto of = masked.channels(i, part);
              const Vector by_grad = part.floats(args.by_grad + i);
              const Vector by_from = part.floats(args.by_from + i);
              const Vector constant = part.floats(args.constant + i);
#pragma GCC unroll 4
              for (int r = 0; r < kCount; ++r) {
                const std::int64_t at = (row + r) * channels + i;
                const auto [centered, g] = masked.at(at, part, of);
                if constexpr (kBeforeRelu) part.template store<Row>(before + at, g);
                part.template store<Row>(to + at, Floats::fma(by_grad, g, Floats::fma(by_from, centered, constant)));
              }
            });
      });
}

template <typename Args>
Mask mask_of(const Args& args) {
  return !args.relu ? Mask::kNone : args.result != nullptr ? Mask::kFromResult : Mask::kComputed;
}

template <typename Row>
void norm_of(const BatchNormArgs& args, std::int64_t begin, std::int64_t end) {
  if (args.residual != nullptr) {
    (args.relu ? norm<Row, true, true> : norm<Row, false, true>)(args, begin, end);
  } else {
    (args.relu ? norm<Row, true, false> : norm<Row, false, false>)(args, begin, end);
  }
}

template <typename Row>
void grad_sums_of(const BatchNormGradArgs& args, std::int64_t begin, std::int64_t end, double* sums, float* scratch) {
  switch (mask_of(args)) {
    case Mask::kNone:
      return grad_sums<Row, Mask::kNone>(args, begin, end, sums, scratch);
    case Mask::kFromResult:
      return grad_sums<Row, Mask::kFromResult>(args, begin, end, sums, scratch);
    case Mask::kComputed:
      return grad_sums<Row, Mask::kComputed>(args, begin, end, sums, scratch);
  }
}

template <typename Row, bool kBeforeRelu>
void grad_of(const BatchNormGradArgs& args, std::int64_t begin, std::int64_t end) {
  switch (mask_of(args)) {
    case Mask::kNone:
      return grad<Row, Mask::kNone, kBeforeRelu>(args, begin, end);
    case Mask::kFromResult:
      return grad<Row, Mask::kFromResult, kBeforeRelu>(args, begin, end);
    case Mask::kComputed:
      return grad<Row, Mask::kComputed, kBeforeRelu>(args, begin, end);
  }
}

}  // namespace

void batch_moments(const PivotedMomentsArgs& args, std::int64_t begin, std::int64_t end, double* sums, float* scratch) {
  (args.dtype == DType::kF32 ? moments<InOrderF32> : moments<RowBf16>)(args, begin, end, sums, scratch);
}

void batch_norm(const BatchNormArgs& args, std::int64_t begin, std::int64_t end) {
  (args.dtype == DType::kF32 ? norm_of<InOrderF32> : norm_of<RowBf16>)(args, begin, end);
}

void batch_norm_grad_sums(const BatchNormGradArgs& args, std::int64_t begin, std::int64_t end, double* sums, float* scratch) {
  (args.dtype == DType::kF32 ? grad_sums_of<InOrderF32> : grad_sums_of<RowBf16>)(args, begin, end, sums, scratch);
}

void batch_norm_grad(const BatchNormGradArgs& args, std::int64_t begin, std::int64_t end) {
  if (args.before_relu != nullptr) {
    (args.dtype == DType::kF32 ? grad_of<InOrderF32, true> : grad_of<RowBf16, true>)(args, begin, end);
  } else {
    (args.dtype == DType::kF32 ? grad_of<InOrderF32, false> : grad_of<RowBf16, false>)(args, begin, end);
  }
}

}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
