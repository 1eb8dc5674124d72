// What follows the sums of conv: rows of kConvChannels fp32, one a pixel, in place.
// Internal linkage, see dispatch.h.
#pragma once

#include "kernels/conv_variants.h"
#include "kernels/simd/activation_kinds.h"
#include "kernels/simd/in_order.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

struct Clamp {
  float low;
  float high;
  [[gnu::always_inline]] Vector operator()(Vector x) const {
    return Floats::at_most(Floats::all(high), Floats::at_least(Floats::all(low), x));
  }
};

struct Hardswish {
  [[gnu::always_inline]] Vector operator()(Vector x) const {
    const Vector gate = Floats::at_most(Floats::all(6.0f), Floats::at_least(Floats::all(0.0f), Floats::add(x, Floats::all(3.0f))));
    return Floats::multiply(x, Floats::multiply(gate, Floats::all(1.0f / 6)));
  }
};

/// `kind` and the residual, in place. What lies behind the channels comes to nothing.
template <typename Order, typename Kind>
void apply_conv(const Kind& kind, bool after, const typename Order::Element* residual, std::int64_t stride, std::int64_t pixels,
                std::int64_t channels, float* sums) {
  for (std::int64_t pixel = 0; pixel < pixels; ++pixel, sums += kConvChannels) {
    for (std::int64_t c = 0; c < channels; c += Lanes::kCount) {
      Vector value = InOrderF32::load(sums + c);
      if (residual == nullptr) {
        value = kind(value);
      } else {
        const auto* from = residual + pixel * stride + c;
        const Vector added = c + Lanes::kCount <= channels ? Order::load(from) : Order::load_part(from, channels - c);
        value = after ? Floats::add(kind(value), added) : kind(Floats::add(value, added));
      }
      InOrderF32::store(sums + c, value);
    }
  }
}

template <typename Order>
void finish_conv(const ConvArgs& args, std::int64_t residual_at, std::int64_t pixels, std::int64_t channels, float* sums) {
  const auto* residual = args.residual == nullptr ? nullptr : static_cast<const typename Order::Element*>(args.residual) + residual_at;
  const std::int64_t stride = args.residual_strides.axis[2];
  const auto with = [&](const auto& kind) { apply_conv<Order>(kind, args.residual_after, residual, stride, pixels, channels, sums); };
  switch (args.activation) {
    case ConvActivation::kNone:
      if (residual != nullptr) with([](Vector x) __attribute__((always_inline)) { return x; });
      return;
    case ConvActivation::kClamp:
      return with(Clamp{args.low, args.high});
    case ConvActivation::kHardswish:
      return with(Hardswish{});
    case ConvActivation::kSilu:
      return with([](Vector x) __attribute__((always_inline)) { return Silu::run(x); });
    case ConvActivation::kGelu:
      return with([](Vector x) __attribute__((always_inline)) { return Gelu::run(x); });
    case ConvActivation::kGeluTanh:
      return with([](Vector x) __attribute__((always_inline)) { return GeluTanh::run(x); });
  }
}

}  // namespace
}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
