// Vectors of adjacent channels, four of them at a time so that a window's address is worked out once for 64 (AVX-512) or 32 channels.
#include "kernels/simd/pool_last.h"

#include "kernels/simd/in_order.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

constexpr std::int64_t kLanes = sizeof(Floats::Vector) / sizeof(float);
constexpr std::int64_t kTogether = 4;

struct Largest {
  static constexpr bool kMean = false;
  [[gnu::always_inline]] static Floats::Vector start() { return Floats::all(-__builtin_inff()); }
  [[gnu::always_inline]] static Floats::Vector next(Floats::Vector most, Floats::Vector value) {
    return Floats::pick(Floats::above_or_nan(value, most), value, most);
  }
};

struct Mean {
  static constexpr bool kMean = true;
  [[gnu::always_inline]] static Floats::Vector start() { return Floats::all(0.0f); }
  [[gnu::always_inline]] static Floats::Vector next(Floats::Vector sum, Floats::Vector value) { return Floats::add(sum, value); }
};

/// One window of one image.
struct Window {
  std::int64_t rows;  ///< elements that count
  std::int64_t columns;
  std::int64_t down;  ///< elements of memory between them
  std::int64_t across;
  float divisor;
};

/// kCount vectors of channels side by side, or one of `part` channels where that is not 0.
template <typename What, typename From, typename To, std::int64_t kCount>
[[gnu::always_inline]] inline void pool_vectors(const Window& window, const typename From::Element* from, std::int64_t part,
                                                typename To::Element* to) {
  Floats::Vector total[kCount];
  for (std::int64_t i = 0; i < kCount; ++i) total[i] = What::start();
  for (std::int64_t y = 0; y < window.rows; ++y, from += window.down) {
    Floats::Vector row[kCount];
    for (std::int64_t i = 0; i < kCount; ++i) row[i] = What::kMean ? What::start() : total[i];
    const typename From::Element* at = from;
    for (std::int64_t x = 0; x < window.columns; ++x, at += window.across) {
      for (std::int64_t i = 0; i < kCount; ++i) {
        row[i] = What::next(row[i], part == 0 ? From::load(at + i * kLanes) : From::load_part(at, part));
      }
    }
    for (std::int64_t i = 0; i < kCount; ++i) total[i] = What::kMean ? Floats::add(total[i], row[i]) : row[i];
  }
  for (std::int64_t i = 0; i < kCount; ++i) {
    if (What::kMean && window.rows > 0 && window.columns > 0) total[i] = Floats::quotient(total[i], Floats::all(window.divisor));
    if (part == 0) {
      To::store(to + i * kLanes, total[i]);
    } else {
      To::store_part(to, total[i], part);
    }
  }
}

std::int64_t counted_in(const PoolLastRange& range, std::int64_t dilation) {
  return range.end > range.begin ? ceil_div(range.end - range.begin, dilation) : 0;
}

template <typename What, typename From, typename To>
void pool(const PoolLastArgs& args, std::int64_t begin, std::int64_t end) {
  const auto* from = static_cast<const typename From::Element*>(args.from);
  auto* to = static_cast<typename To::Element*>(args.to);
  const std::int64_t blocks = ceil_div(args.channels, kPoolLastChannels);
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t row = item / blocks;
    const std::int64_t first = item % blocks * kPoolLastChannels;
    const std::int64_t last = first + kPoolLastChannels < args.channels ? first + kPoolLastChannels : args.channels;
    const std::int64_t image = row / args.out_height;
    const PoolLastRange rows = pool_last_range(args.down, args.height, row % args.out_height);
    Window window{};
    window.rows = counted_in(rows, args.down.dilation);
    window.down = args.down.dilation * args.width * args.channels;
    window.across = args.across.dilation * args.channels;
    for (std::int64_t x = 0; x < args.out_width; ++x) {
      const PoolLastRange columns = pool_last_range(args.across, args.width, x);
      window.columns = counted_in(columns, args.across.dilation);
      const std::int64_t inside = window.rows * window.columns;
      window.divisor = static_cast<float>(args.divisor != 0 ? args.divisor : args.count_padding ? rows.counted * columns.counted : inside);
      const auto* at =
          from + ((image * args.height + (window.rows > 0 ? rows.begin : 0)) * args.width + (window.columns > 0 ? columns.begin : 0)) *
                     args.channels;
      auto* out = to + (row * args.out_width + x) * args.channels;
      std::int64_t c = first;
      for (; c + kTogether * kLanes <= last; c += kTogether * kLanes) pool_vectors<What, From, To, kTogether>(window, at + c, 0, out + c);
      for (; c + kLanes <= last; c += kLanes) pool_vectors<What, From, To, 1>(window, at + c, 0, out + c);
      if (c < last) pool_vectors<What, From, To, 1>(window, at + c, last - c, out + c);
    }
  }
}

template <typename What>
void pool_of_dtypes(const PoolLastArgs& args, std::int64_t begin, std::int64_t end) {
  if (args.from_dtype == DType::kF32) {
    args.to_dtype == DType::kF32 ? pool<What, InOrderF32, InOrderF32>(args, begin, end)
                                 : pool<What, InOrderF32, InOrderBf16>(args, begin, end);
  } else {
    args.to_dtype == DType::kF32 ? pool<What, InOrderBf16, InOrderF32>(args, begin, end)
                                 : pool<What, InOrderBf16, InOrderBf16>(args, begin, end);
  }
}

}  // namespace

void max_pool_last(const PoolLastArgs& args, std::int64_t begin, std::int64_t end) { pool_of_dtypes<Largest>(args, begin, end); }

void average_pool_last(const PoolLastArgs& args, std::int64_t begin, std::int64_t end) { pool_of_dtypes<Mean>(args, begin, end); }

}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
