// Packs weights, plans scratch and shares the rows of a call among the workers. Compiled for the base instruction set.
#include "kernels/conv.h"

#include <algorithm>
#include <cmath>

#include "kernels/bf16.h"
#include "kernels/choose.h"
#include "kernels/conv_dense_call.h"
#include "kernels/conv_variants.h"
#include "kernels/share.h"

namespace ipexrun::kernels {
namespace {

/// Below this many multiply-adds a call is shorter than waking a second worker.
constexpr double kSerialProducts = 1 << 17;
/// Rows of scratch that windows reach over, as long as that leaves enough outputs beside each other: they are read from L1 for each tap.
constexpr std::int64_t kRingBytes = 32 << 10;
constexpr std::int64_t kLeastSegment = 21;
/// Windows that reach very far want more, of each worker: those are left to the reference.
constexpr double kMostScratchBytes = 64 << 20;
constexpr std::int64_t kPixelBytes = kConvChannels * static_cast<std::int64_t>(sizeof(float));

bool depthwise_form(std::int64_t in_channels, std::int64_t out_channels, std::int64_t groups) {
  return in_channels == groups && out_channels == groups;
}

std::int64_t taps_of(const ConvArgs& args) { return args.axes[0].kernel * args.axes[1].kernel * args.axes[2].kernel; }

std::int64_t reach_of(const ConvAxis& axis, std::int64_t outputs) {
  return (outputs - 1) * axis.stride + (axis.kernel - 1) * axis.dilation + 1;
}

/// `bytes` after what is there; returns where.
std::size_t reserve(DepthwisePlan* plan, std::int64_t bytes) {
  const std::size_t at = plan->bytes;
  plan->bytes = (at + static_cast<std::size_t>(bytes) + 63) / 64 * 64;
  return at;
}

DepthwisePlan plan_of(const ConvArgs& args) {
  const ConvAxis& across = args.axes[2];
  DepthwisePlan plan;
  plan.taps = taps_of(args);
  plan.blocks = ceil_div(args.out_channels, kConvChannels);
  plan.rows = args.axes[0].out * args.axes[1].out;
  const std::int64_t slots = args.axes[0].kernel * args.axes[1].kernel;
  const std::int64_t most = (kRingBytes / kPixelBytes / slots - (across.kernel - 1) * across.dilation - 1) / across.stride + 1;
  plan.segments = ceil_div(across.out, std::max(most, kLeastSegment));
  plan.segment = ceil_div(across.out, plan.segments);
  plan.pixels = reach_of(across, plan.segment);
  plan.strips = args.images * plan.blocks * plan.segments;
  plan.ring = reserve(&plan, slots * plan.pixels * kPixelBytes);
  plan.tags = reserve(&plan, slots * static_cast<std::int64_t>(sizeof(std::int64_t)));
  plan.at = reserve(&plan, 2 * slots * static_cast<std::int64_t>(sizeof(const float*)));
  plan.weights = reserve(&plan, args.packed_dtype == DType::kF32 ? 0 : plan.taps * kPixelBytes);
  plan.sums = reserve(&plan, (1 + plan.segment) * kPixelBytes);
  return plan;
}

/// Every dimension and the scratch of a plan can be counted without running over.
bool countable(const ConvArgs& args) {
  const ConvAxis& across = args.axes[2];
  const double pixels = static_cast<double>(kLeastSegment) * static_cast<double>(across.stride) +
                        static_cast<double>(across.kernel) * static_cast<double>(across.dilation);
  return pixels * static_cast<double>(args.axes[0].kernel * args.axes[1].kernel) * static_cast<double>(kPixelBytes) <= kMostScratchBytes;
}

float weight_at(const ConvWeight& weight, std::int64_t offset) {
  return weight.dtype == DType::kF32 ? static_cast<const float*>(weight.data)[offset]
                                     : bf16_to_f32(static_cast<const std::uint16_t*>(weight.data)[offset]);
}

}  // namespace

bool conv_known(std::int64_t in_channels, std::int64_t out_channels, std::int64_t groups, DType packed_dtype) {
  if (groups <= 0) return false;
  if (depthwise_form(in_channels, out_channels, groups)) return true;
  return packed_dtype == DType::kBf16 && in_channels > 0 && in_channels % groups == 0 && out_channels % groups == 0;
}

std::size_t conv_packed_bytes(const ConvWeight& weight) {
  if (!conv_known(weight.in_channels, weight.out_channels, weight.groups, weight.packed_dtype)) return 0;
  if (!depthwise_form(weight.in_channels, weight.out_channels, weight.groups)) return dense_packed_bytes(weight);
  const double taps = static_cast<double>(weight.kernel[0]) * static_cast<double>(weight.kernel[1]) * static_cast<double>(weight.kernel[2]);
  const std::int64_t blocks = ceil_div(weight.out_channels, kConvChannels);
  if (taps * static_cast<double>(blocks) > 0x1p50) return 0;
  return static_cast<std::size_t>(weight.kernel[0] * weight.kernel[1] * weight.kernel[2] * blocks * kConvChannels *
                                  bytes_of(weight.packed_dtype));
}

void pack_conv(const ConvWeight& weight, void* to, const Parallel& parallel) {
  if (!depthwise_form(weight.in_channels, weight.out_channels, weight.groups)) return pack_dense(weight, to, parallel);
  std::int64_t index = 0;
  for (std::int64_t block = 0; block < weight.out_channels; block += kConvChannels) {
    std::int64_t k[kConvAxes];
    for (k[0] = 0; k[0] < weight.kernel[0]; ++k[0]) {
      for (k[1] = 0; k[1] < weight.kernel[1]; ++k[1]) {
        for (k[2] = 0; k[2] < weight.kernel[2]; ++k[2]) {
          const std::int64_t tap = k[0] * weight.strides[0] + k[1] * weight.strides[1] + k[2] * weight.strides[2];
          for (std::int64_t channel = block; channel < block + kConvChannels; ++channel) {
            float value = 0;
            if (channel < weight.out_channels) value = weight_at(weight, channel * weight.out_stride + tap);
            if (channel < weight.out_channels && weight.scale != nullptr) value *= weight.scale[channel];
            if (weight.packed_dtype == DType::kF32) {
              static_cast<float*>(to)[index++] = value;
            } else {
              static_cast<std::uint16_t*>(to)[index++] = bf16_from_f32(value);
            }
          }
        }
      }
    }
  }
}

void fold_batch_norm(const BatchNorm& norm, const float* bias, std::int64_t channels, float* scale, float* folded) {
  for (std::int64_t i = 0; i < channels; ++i) {
    const double weight = norm.weight == nullptr ? 1 : static_cast<double>(norm.weight[i]);
    const double shift = norm.shift == nullptr ? 0 : static_cast<double>(norm.shift[i]);
    const double added = bias == nullptr ? 0 : static_cast<double>(bias[i]);
    const double factor = weight / std::sqrt(static_cast<double>(norm.variance[i]) + norm.eps);
    scale[i] = static_cast<float>(factor);
    folded[i] = static_cast<float>((added - static_cast<double>(norm.mean[i])) * factor + shift);
  }
}

bool conv_supported(const ConvArgs& args, IsaSet isa) {
  if (!conv_known(args.in_channels, args.out_channels, args.groups, args.packed_dtype)) return false;
  if (!depthwise_form(args.in_channels, args.out_channels, args.groups)) return dense_supported(args, isa);
  return countable(args) && choose(depthwise_variants(), isa).needs != 0;
}

const char* conv_variant(const ConvArgs& args, IsaSet isa) {
  if (!depthwise_form(args.in_channels, args.out_channels, args.groups)) return dense_variant(args, isa);
  return choose(depthwise_variants(), countable(args) ? isa : 0).name;
}

bool convolve(const ConvArgs& args, const Parallel& parallel, IsaSet isa) {
  if (args.images <= 0 || args.out_channels <= 0 || args.axes[0].out <= 0 || args.axes[1].out <= 0 || args.axes[2].out <= 0) return true;
  if (!conv_known(args.in_channels, args.out_channels, args.groups, args.packed_dtype)) return false;
  if (!depthwise_form(args.in_channels, args.out_channels, args.groups)) return dense(args, parallel, isa);
  const DepthwiseVariant& variant = choose(depthwise_variants(), countable(args) ? isa : 0);
  DepthwisePlan plan = plan_of(args);
  plan.put = variant.put;
  if (variant.needs == 0) plan.bytes = 0;
  const std::int64_t items = plan.strips * plan.rows;
  const double products = static_cast<double>(items) * static_cast<double>(plan.segment * plan.taps * kConvChannels);
  const std::int64_t parts = parts_of(items, products > kSerialProducts, parallel);
  return share(parts, plan.bytes, parallel, [&](std::int64_t part, void* scratch) {
    variant.run(args, plan, begin_of(items, part, parts), begin_of(items, part + 1, parts), scratch);
    return true;
  });
}

}  // namespace ipexrun::kernels
