// The truth of conv: one element after the other, in doubles, from the packed weights.
#include "kernels/ref/conv.h"

#include <algorithm>
#include <cmath>

#include "kernels/bf16.h"
#include "kernels/packed.h"
#include "kernels/ref/activation.h"
#include "kernels/ref/element.h"

namespace ipexrun::kernels::ref {
namespace {

/// visit(offset of the input pixel, tap) for all that the windows of output `at` meet.
template <typename Visit>
void for_each_tap(const ConvArgs& args, const std::int64_t (&at)[kConvAxes], Visit visit) {
  const ConvAxis* axes = args.axes;
  std::int64_t k[kConvAxes];
  for (k[0] = 0; k[0] < axes[0].kernel; ++k[0]) {
    for (k[1] = 0; k[1] < axes[1].kernel; ++k[1]) {
      for (k[2] = 0; k[2] < axes[2].kernel; ++k[2]) {
        bool inside = true;
        std::int64_t offset = 0;
        for (int i = 0; i < kConvAxes; ++i) {
          const std::int64_t place = at[i] * axes[i].stride - axes[i].pad + k[i] * axes[i].dilation;
          inside = inside && place >= 0 && place < axes[i].in;
          offset += place * args.from_strides.axis[i];
        }
        if (inside) visit(offset, (k[0] * axes[1].kernel + k[1]) * axes[2].kernel + k[2]);
      }
    }
  }
}

std::int64_t offset_of(const ConvStrides& strides, std::int64_t image, const std::int64_t (&at)[kConvAxes]) {
  return image * strides.image + at[0] * strides.axis[0] + at[1] * strides.axis[1] + at[2] * strides.axis[2];
}

void finish(const ConvArgs& args, double sum, std::int64_t image, const std::int64_t (&at)[kConvAxes], std::int64_t channel) {
  const double residual =
      args.residual == nullptr ? 0 : get(args.residual, args.to_dtype, offset_of(args.residual_strides, image, at) + channel);
  const double value = args.residual_after ? conv_activation(args, sum) + residual : conv_activation(args, sum + residual);
  put(args.to, args.to_dtype, offset_of(args.to_strides, image, at) + channel, value);
}

}  // namespace

double conv_activation(const ConvArgs& args, double value) {
  switch (args.activation) {
    case ConvActivation::kNone:
      return value;
    case ConvActivation::kClamp:
      return std::isnan(value) ? value : std::min(std::max(value, static_cast<double>(args.low)), static_cast<double>(args.high));
    case ConvActivation::kHardswish:
      return std::isnan(value) ? value : value * (std::min(std::max(value + 3, 0.0), 6.0) / 6);
    case ConvActivation::kSilu:
      return activation_of(Activation::kSilu, value);
    case ConvActivation::kGelu:
      return activation_of(Activation::kGelu, value);
    case ConvActivation::kGeluTanh:
      return activation_of(Activation::kGeluTanh, value);
  }
  return value;
}

void depthwise(const ConvArgs& args, const DepthwisePlan& plan, std::int64_t begin, std::int64_t end, void* /*scratch*/) {
  for (std::int64_t index = begin; index < end; ++index) {
    const std::int64_t strip = index / plan.rows;
    const std::int64_t row = index % plan.rows;
    const std::int64_t first = strip % plan.segments * plan.segment;
    const std::int64_t image = strip / plan.segments / plan.blocks;
    const std::int64_t first_channel = strip / plan.segments % plan.blocks * kConvChannels;
    const std::int64_t last_channel = std::min(first_channel + kConvChannels, args.out_channels);
    std::int64_t at[kConvAxes] = {row / args.axes[1].out, row % args.axes[1].out, first};
    for (; at[2] < std::min(first + plan.segment, args.axes[2].out); ++at[2]) {
      for (std::int64_t channel = first_channel; channel < last_channel; ++channel) {
        double sum = args.bias == nullptr ? 0 : get(args.bias, args.bias_dtype, channel);
        for_each_tap(args, at, [&](std::int64_t offset, std::int64_t tap) {
          const std::int64_t place = (channel / kConvChannels * plan.taps + tap) * kConvChannels + channel % kConvChannels;
          sum += get(args.from, args.from_dtype, image * args.from_strides.image + offset + channel) *
                 get(args.packed, args.packed_dtype, place);
        });
        finish(args, sum, image, at, channel);
      }
    }
  }
}

void dense_conv(const ConvArgs& args, const DensePlan& plan, const DenseBlock& block, void* /*scratch*/) {
  const DenseShape& shape = plan.shape;
  const std::int64_t width = args.axes[2].kernel;
  const auto* packed = static_cast<const std::uint16_t*>(args.packed);
  const auto rounded = [](double value) { return static_cast<double>(bf16_to_f32(bf16_from_f32(static_cast<float>(value)))); };
  for (std::int64_t item = block.row_begin; item < block.row_end; ++item) {
    const std::int64_t row = item / plan.segments;
    const std::int64_t image = row / args.axes[1].out / args.axes[0].out;
    const std::int64_t first = item % plan.segments * plan.segment;
    std::int64_t at[kConvAxes] = {row / args.axes[1].out % args.axes[0].out, row % args.axes[1].out, first};
    for (; at[2] < std::min(first + plan.segment, args.axes[2].out); ++at[2]) {
      for (std::int64_t index = block.panel_begin * kPanelColumns; index < block.panel_end * kPanelColumns; ++index) {
        const std::int64_t column = index % (shape.panels * kPanelColumns);
        const std::int64_t channel = index / (shape.panels * kPanelColumns) * shape.slab_out + column;
        if (column >= shape.slab_out || channel >= args.out_channels) continue;
        const std::uint16_t* panel = packed + index / kPanelColumns * shape.steps * kStepElements;
        const std::int64_t group = channel / shape.group_out;
        const std::int64_t in_first = group % shape.slab_groups * shape.group_in;
        const std::int64_t slab_in = std::min(args.in_channels - channel / shape.slab_out * shape.slab_in, shape.slab_in);
        double sum = args.bias == nullptr ? 0 : get(args.bias, args.bias_dtype, channel);
        for_each_tap(args, at, [&](std::int64_t offset, std::int64_t tap) {
          for (std::int64_t in = 0; in < shape.group_in; ++in) {
            const std::int64_t k = shape.merged ? tap % width * slab_in + in_first + in : in_first + in;
            const std::int64_t step = k / kStepK * shape.taps + (shape.merged ? tap / width : tap);
            const double weight =
                static_cast<double>(bf16_to_f32(panel[packed_offset(step * kStepK + k % kStepK, column % kPanelColumns)]));
            sum +=
                rounded(get(args.from, args.from_dtype, image * args.from_strides.image + offset + group * shape.group_in + in)) * weight;
          }
        });
        finish(args, sum, image, at, channel);
      }
    }
  }
}

}  // namespace ipexrun::kernels::ref
