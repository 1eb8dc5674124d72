// depthwise convolution, 32 channels of a row of outputs at a time; compiled once per instruction set, with IPEXRUN_KERNEL_ISA naming the
// namespace.
//
// A row of the input lies in scratch as fp32, 32 channels a pixel, zeros where it lies outside the image, for as long as windows may reach
// it: a window is then as many fixed steps, without edges, and the input is converted once for all its taps.
#include "kernels/simd/depthwise.h"

#include "kernels/simd/conv_finish.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

constexpr std::int64_t kLanes = Lanes::kCount;
constexpr std::int64_t kNoRow = -1;

/// Vectors of channels and outputs that sums are kept of in registers.
#if defined(IPEXRUN_KERNEL_ISA_AVX512)
constexpr int kVectors = 2;
constexpr int kOutputs = 7;
#else
constexpr int kVectors = 1;
constexpr int kOutputs = 7;
#endif

std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
std::int64_t larger(std::int64_t a, std::int64_t b) { return a > b ? a : b; }

/// A row of the input that windows meet, and its taps' weights.
struct Row {
  const float* pixels;
  const float* weights;
};

/// What a call keeps in its scratch.
struct Scratch {
  float* ring;
  std::int64_t* tags;
  Row* rows;
  float* weights;
  float* bias;
  float* sums;

  Scratch(const DepthwisePlan& plan, void* memory)
      : ring(reinterpret_cast<float*>(static_cast<char*>(memory) + plan.ring)),
        tags(reinterpret_cast<std::int64_t*>(static_cast<char*>(memory) + plan.tags)),
        rows(reinterpret_cast<Row*>(static_cast<char*>(memory) + plan.at)),
        weights(reinterpret_cast<float*>(static_cast<char*>(memory) + plan.weights)),
        bias(reinterpret_cast<float*>(static_cast<char*>(memory) + plan.sums)),
        sums(bias + kConvChannels) {}
};

/// One strip of the plan.
struct Strip {
  std::int64_t image;
  std::int64_t channel;   ///< the first
  std::int64_t channels;  ///< up to 32
  std::int64_t first;     ///< output
  std::int64_t outputs;
  const float* weights;
};

template <typename Order>
void lay_out(const typename Order::Element* from, std::int64_t stride, std::int64_t pixels, std::int64_t channels, float* to) {
  for (std::int64_t i = 0; i < pixels; ++i, from += stride, to += kConvChannels) {
    if (channels == kConvChannels) {
#pragma GCC unroll 4
      for (std::int64_t c = 0; c < kConvChannels; c += kLanes) InOrderF32::store(to + c, Order::load(from + c));
    } else {
      std::int64_t c = 0;
      for (; c + kLanes <= channels; c += kLanes) InOrderF32::store(to + c, Order::load(from + c));
      if (c < channels) InOrderF32::store(to + c, Order::load_part(from + c, channels - c));
    }
  }
}

void lay_zeros(std::int64_t pixels, float* to) {
  for (std::int64_t i = 0; i < pixels * kConvChannels; i += kLanes) InOrderF32::store(to + i, Floats::all(0.0f));
}

/// Pixels of the input row at `offset` that the strip meets.
void lay_row(const ConvArgs& args, const DepthwisePlan& plan, const Strip& strip, std::int64_t offset, float* to) {
  const ConvAxis& across = args.axes[2];
  const std::int64_t start = strip.first * across.stride - across.pad;
  const std::int64_t before = smaller(larger(-start, 0), plan.pixels);
  const std::int64_t end = larger(smaller(across.in - start, plan.pixels), before);
  const std::int64_t stride = args.from_strides.axis[2];
  const std::int64_t at = offset + (start + before) * stride + strip.channel;
  lay_zeros(before, to);
  float* inside = to + before * kConvChannels;
  if (args.from_dtype == DType::kF32) {
    lay_out<InOrderF32>(static_cast<const float*>(args.from) + at, stride, end - before, strip.channels, inside);
  } else {
    lay_out<InOrderBf16>(static_cast<const std::uint16_t*>(args.from) + at, stride, end - before, strip.channels, inside);
  }
  lay_zeros(plan.pixels - end, to + end * kConvChannels);
}

/// Which row of scratch row `i` of a dimension has, the `k`-th that a window meets.
std::int64_t slot_of(const ConvAxis& axis, std::int64_t i, std::int64_t k) { return axis.dilation == 1 ? i % axis.kernel : k; }

/// Lays out what output row (depth, height) meets and is not there yet; returns how many rows these are.
std::int64_t lay_rows(const ConvArgs& args, const DepthwisePlan& plan, const Scratch& scratch, const Strip& strip, std::int64_t row) {
  const ConvAxis& deep = args.axes[0];
  const ConvAxis& down = args.axes[1];
  const std::int64_t z0 = row / down.out * deep.stride - deep.pad;
  const std::int64_t y0 = row % down.out * down.stride - down.pad;
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < deep.kernel; ++i) {
    const std::int64_t z = z0 + i * deep.dilation;
    if (z < 0 || z >= deep.in) continue;
    for (std::int64_t j = 0; j < down.kernel; ++j) {
      const std::int64_t y = y0 + j * down.dilation;
      if (y < 0 || y >= down.in) continue;
      const std::int64_t slot = slot_of(deep, z, i) * down.kernel + slot_of(down, y, j);
      float* to = scratch.ring + slot * plan.pixels * kConvChannels;
      const std::int64_t tag = z * down.in + y;
      if (scratch.tags[slot] != tag) {
        const ConvStrides& strides = args.from_strides;
        lay_row(args, plan, strip, strip.image * strides.image + z * strides.axis[0] + y * strides.axis[1], to);
        scratch.tags[slot] = tag;
      }
      scratch.rows[count++] = {to, strip.weights + (i * down.kernel + j) * args.axes[2].kernel * kConvChannels};
    }
  }
  return count;
}

/// What the outputs of a row sum up: those side by side are `step` floats apart, the taps of a row `reach`.
struct Walk {
  const Row* rows;
  std::int64_t count;
  std::int64_t taps;
  std::int64_t reach;
  std::int64_t step;
};

template <int V, int W>
[[gnu::always_inline]] inline void begin(const float* bias, Vector (&acc)[W][V]) {
#pragma GCC unroll 8
  for (int w = 0; w < W; ++w) {
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) acc[w][v] = InOrderF32::load(bias + v * kLanes);
  }
}

template <int V, int W>
[[gnu::always_inline]] inline void end(const Vector (&acc)[W][V], float* sums) {
#pragma GCC unroll 8
  for (int w = 0; w < W; ++w) {
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) InOrderF32::store(sums + w * kConvChannels + v * kLanes, acc[w][v]);
  }
}

/// `outputs` outputs, at least W, from channel `at` on, W at a time: the last of them perhaps once more.
template <int V, int W>
void add_up(const Walk& walk, std::int64_t outputs, std::int64_t at, const float* bias, float* sums) {
  for (std::int64_t i = 0; i < outputs; i += W) {
    const std::int64_t first = smaller(i, outputs - W);
    Vector acc[W][V];
    begin<V, W>(bias, acc);
    for (std::int64_t row = 0; row < walk.count; ++row) {
      const float* x = walk.rows[row].pixels + first * walk.step + at;
      const float* weights = walk.rows[row].weights + at;
      for (std::int64_t k = 0; k < walk.taps; ++k, x += walk.reach, weights += kConvChannels) {
        Vector weight[V];
#pragma GCC unroll 2
        for (int v = 0; v < V; ++v) weight[v] = InOrderF32::load(weights + v * kLanes);
#pragma GCC unroll 8
        for (int w = 0; w < W; ++w) {
#pragma GCC unroll 2
          for (int v = 0; v < V; ++v) acc[w][v] = Floats::fma(InOrderF32::load(x + w * walk.step + v * kLanes), weight[v], acc[w][v]);
        }
      }
    }
    end<V, W>(acc, sums + first * kConvChannels);
  }
}

#if defined(IPEXRUN_KERNEL_ISA_AVX512)
/// K neighbouring taps of kOutputs outputs, S pixels apart: each vector of pixels is loaded once for all that meet it.
template <int V, int S, int K>
[[gnu::always_inline]] inline void add_neighbours(const float*& x, const float*& weights, std::int64_t& left, Vector (&acc)[kOutputs][V]) {
  Vector weight[K][V];
#pragma GCC unroll 8
  for (int k = 0; k < K; ++k) {
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) weight[k][v] = InOrderF32::load(weights + k * kConvChannels + v * kLanes);
  }
#pragma GCC unroll 32
  for (int p = 0; p < (kOutputs - 1) * S + K; ++p) {
    Vector pixel[V];
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) pixel[v] = InOrderF32::load(x + p * kConvChannels + v * kLanes);
#pragma GCC unroll 8
    for (int k = 0; k < K; ++k) {
      if (p < k || (p - k) % S != 0 || (p - k) / S >= kOutputs) continue;
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) acc[(p - k) / S][v] = Floats::fma(pixel[v], weight[k][v], acc[(p - k) / S][v]);
    }
  }
  x += K * kConvChannels;
  weights += K * kConvChannels;
  left -= K;
}

/// add_up of kOutputs at a time where taps are neighbours, and outputs S pixels apart.
template <int V, int S>
void add_up_near(const Walk& walk, std::int64_t outputs, std::int64_t at, const float* bias, float* sums) {
  for (std::int64_t i = 0; i < outputs; i += kOutputs) {
    const std::int64_t first = smaller(i, outputs - kOutputs);
    Vector acc[kOutputs][V];
    begin<V, kOutputs>(bias, acc);
    for (std::int64_t row = 0; row < walk.count; ++row) {
      const float* x = walk.rows[row].pixels + first * S * kConvChannels + at;
      const float* weights = walk.rows[row].weights + at;
      std::int64_t left = walk.taps;
      while (left > 0) {  // more than 5 at a time and their weights no longer fit into registers
        if (left >= 8 || left == 5) {
          add_neighbours<V, S, 5>(x, weights, left, acc);
        } else if (left == 7 || left == 4) {
          add_neighbours<V, S, 4>(x, weights, left, acc);
        } else if (left >= 3) {
          add_neighbours<V, S, 3>(x, weights, left, acc);
        } else {
          add_neighbours<V, S, 1>(x, weights, left, acc);
        }
      }
    }
    end<V, kOutputs>(acc, sums + first * kConvChannels);
  }
}
#endif

using AddUp = void (*)(const Walk& walk, std::int64_t outputs, std::int64_t at, const float* bias, float* sums);
template <int V>
constexpr AddUp kAddUp[] = {add_up<V, 1>, add_up<V, 2>, add_up<V, 3>, add_up<V, 4>, add_up<V, 5>, add_up<V, 6>, add_up<V, 7>};

template <int V>
AddUp add_up_for([[maybe_unused]] const Walk& walk, std::int64_t outputs) {
#if defined(IPEXRUN_KERNEL_ISA_AVX512)
  if (outputs >= kOutputs && walk.reach == kConvChannels) {
    if (walk.step == kConvChannels) return add_up_near<V, 1>;
    if (walk.step == 2 * kConvChannels) return add_up_near<V, 2>;
  }
#endif
  return kAddUp<V>[smaller(outputs, kOutputs) - 1];
}

void put_f32(const float* sums, std::int64_t pixels, std::int64_t channels, float* to, std::int64_t stride) {
  for (std::int64_t pixel = 0; pixel < pixels; ++pixel, sums += kConvChannels, to += stride) {
    std::int64_t c = 0;
    for (; c + kLanes <= channels; c += kLanes) InOrderF32::store(to + c, InOrderF32::load(sums + c));
    if (c < channels) InOrderF32::store_part(to + c, InOrderF32::load(sums + c), channels - c);
  }
}

std::int64_t offset_of(const ConvStrides& strides, const ConvArgs& args, std::int64_t image, std::int64_t row, std::int64_t pixel) {
  const std::int64_t height = args.axes[1].out;
  return image * strides.image + row / height * strides.axis[0] + row % height * strides.axis[1] + pixel * strides.axis[2];
}

void run_row(const ConvArgs& args, const DepthwisePlan& plan, const Scratch& scratch, const Strip& strip, std::int64_t row) {
  const ConvAxis& across = args.axes[2];
  const Walk walk{scratch.rows, lay_rows(args, plan, scratch, strip, row), across.kernel, across.dilation * kConvChannels,
                  across.stride * kConvChannels};
  for (std::int64_t c = 0; c < strip.channels;) {
    const bool wide = kVectors > 1 && strip.channels - c > kLanes;
    const AddUp add = wide ? add_up_for<kVectors>(walk, strip.outputs) : add_up_for<1>(walk, strip.outputs);
    add(walk, strip.outputs, c, scratch.bias + c, scratch.sums + c);
    c += wide ? kVectors * kLanes : kLanes;
  }
  const std::int64_t residual_at = offset_of(args.residual_strides, args, strip.image, row, strip.first) + strip.channel;
  const std::int64_t at = offset_of(args.to_strides, args, strip.image, row, strip.first) + strip.channel;
  if (args.to_dtype == DType::kF32) {
    finish_conv<InOrderF32>(args, residual_at, strip.outputs, strip.channels, scratch.sums);
    put_f32(scratch.sums, strip.outputs, strip.channels, static_cast<float*>(args.to) + at, args.to_strides.axis[2]);
  } else {
    finish_conv<InOrderBf16>(args, residual_at, strip.outputs, strip.channels, scratch.sums);
    plan.put(scratch.sums, strip.outputs, strip.channels, static_cast<std::uint16_t*>(args.to) + at, args.to_strides.axis[2]);
  }
}

Strip strip_of(const ConvArgs& args, const DepthwisePlan& plan, const Scratch& scratch, std::int64_t index) {
  Strip strip{};
  const std::int64_t block = index / plan.segments % plan.blocks;
  strip.image = index / plan.segments / plan.blocks;
  strip.channel = block * kConvChannels;
  strip.channels = smaller(args.out_channels - strip.channel, kConvChannels);
  strip.first = index % plan.segments * plan.segment;
  strip.outputs = smaller(args.axes[2].out - strip.first, plan.segment);
  const std::int64_t packed = block * plan.taps * kConvChannels;
  if (args.packed_dtype == DType::kF32) {
    strip.weights = static_cast<const float*>(args.packed) + packed;
  } else {
    lay_out<InOrderBf16>(static_cast<const std::uint16_t*>(args.packed) + packed, kConvChannels, plan.taps, kConvChannels, scratch.weights);
    strip.weights = scratch.weights;
  }
  return strip;
}

void lay_bias(const ConvArgs& args, const Strip& strip, float* to) {
  lay_zeros(1, to);
  if (args.bias == nullptr) return;
  if (args.bias_dtype == DType::kF32) {
    lay_out<InOrderF32>(static_cast<const float*>(args.bias) + strip.channel, 0, 1, strip.channels, to);
  } else {
    lay_out<InOrderBf16>(static_cast<const std::uint16_t*>(args.bias) + strip.channel, 0, 1, strip.channels, to);
  }
}

}  // namespace

void depthwise(const ConvArgs& args, const DepthwisePlan& plan, std::int64_t begin, std::int64_t end, void* memory) {
  const Scratch scratch(plan, memory);
  // Lanes behind the last channel are computed as well: with what is here, nothing that would slow arithmetic down.
  lay_zeros(args.axes[0].kernel * args.axes[1].kernel * plan.pixels, scratch.ring);
  lay_zeros(1 + plan.segment, scratch.bias);
  std::int64_t last = -1;
  Strip strip{};
  for (std::int64_t i = begin; i < end; ++i) {
    if (i / plan.rows != last) {
      last = i / plan.rows;
      strip = strip_of(args, plan, scratch, last);
      for (std::int64_t slot = 0; slot < args.axes[0].kernel * args.axes[1].kernel; ++slot) scratch.tags[slot] = kNoRow;
      lay_bias(args, strip, scratch.bias);
    }
    run_row(args, plan, scratch, strip, i % plan.rows);
  }
}

}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
