// Sites and candidates of the gradients of a convolution: stock's own operator on bf16 copies, as the images lie or channels last,
// and products of matrices.
#include "preload/plugin/adapters/convolution_grad_call.h"

#include <ATen/native/ConvUtils.h>
#include <c10/core/SymIntArrayRef.h>

#include <ATen/ops/constant_pad_nd_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/convolution_backward_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <ATen/ops/sum_cpu_dispatch.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <tuple>
#include <vector>

#include "configs/contract/decision.h"
#include "preload/plugin/adapters/images.h"
#include "preload/plugin/candidate_kernels.h"

namespace ipexrun::preload {
namespace {

constexpr std::uint32_t kWantsImage = 1u << 27;
constexpr std::uint32_t kWantsBias = 1u << 28;

/// torch's product of matrices, which computes kernels of one pixel on one thread, gives a plain weight a plain gradient, whatever its
/// images are.
bool weight_is_planar(const ConvolutionCall& forward) {
  const at::Tensor& w = *forward.w;
  if (forward.transposed || !forward.channels_last || forward.dims() != 2 || w.size(2) * w.size(3) != 1) return false;
  if (w.suggest_memory_format() != at::MemoryFormat::Contiguous) return false;
  const OnednnSizes stride(forward.stride, 2);
  const OnednnSizes padding(forward.padding, 2);
  const OnednnSizes dilation(forward.dilation, 2);
  const std::array<std::int64_t, 2> none{};
  const auto sizes = [](at::IntArrayRef values) { return c10::fromIntArrayRefUnchecked(values); };
  return at::native::select_conv_backend(*forward.x, w, std::nullopt, sizes(stride), sizes(padding), sizes(dilation), false, sizes(none),
                                         forward.groups, std::nullopt) == at::native::ConvBackend::Slow2d;
}

}  // namespace

SiteId ConvolutionGradCall::site_id() const {
  SiteId id = forward.site_id();
  id.op = static_cast<std::uint32_t>(op);
  id.form |= kFormTraining | (wants_image ? kWantsImage : 0) | (wants_bias ? kWantsBias : 0);
  return id;
}

SiteKey ConvolutionGradCall::site_key(const SiteId& id, const TierOptions& options) const {
  SiteKey key = forward.site_key(id, options);
  key.op.replace(0, std::string("convolution").size(), "convolution_backward");
  key.sizes += wants_image ? "" : ",image=0";
  key.sizes += wants_bias ? ",bias=1" : "";
  return key;
}

bool ConvolutionGradCall::windows_fit_image() const {
  const Spatial& image = forward.transposed ? forward.out : forward.in;
  for (std::size_t d = 0; d < image.size(); ++d)
    if (image[d] == 1 && forward.kernel[d] > 1) return false;
  return true;
}

bool ConvolutionGradCall::strided_pixels_fill_blocks() const {
  constexpr std::int64_t kBlock = 16;
  if (forward.kernel != Spatial{1, 1, 1} || forward.stride == Spatial{1, 1, 1}) return true;
  return forward.w->size(1) % kBlock == 0;
}

std::vector<int> ConvolutionGradCall::candidates(const TierOptions& options) const {
  // Where the CPU has no such products, stock's gradients of 16 bits are loops over elements.
  if (forward.dtype != at::kFloat && !half_is_native(forward.dtype, options.isa)) return {kF32Cast};
  if (forward.dtype == at::kHalf) return {};
  const bool half_inputs = forward.dtype == at::kBFloat16;
  if (!(half_inputs ? bf16_is_native(options.isa) : bf16_inside_allowed(options))) return {};
  std::vector<int> fitting;
  if (!half_inputs && windows_fit_image() && strided_pixels_fill_blocks()) fitting = {kOnednnBf16Cast, kOnednnBf16Last};
  if (are_products()) fitting.push_back(kOnednnBf16Packed);
  return fitting;
}

bool ConvolutionGradCall::are_products() const {
  constexpr std::int64_t kMostBytes = 8 << 20;  // of windows side by side: beyond caches copying them costs what products could save
  if (forward.transposed || forward.dims() == 3 || forward.groups != 1) return false;
  const double pixels = static_cast<double>(forward.x->size(0)) * static_cast<double>(forward.out[1] * forward.out[2]);
  return is_of_pixels() || 2 * pixels * static_cast<double>(forward.depth()) <= static_cast<double>(kMostBytes);
}

/// Windows of one pixel, perhaps of every second one.
bool ConvolutionGradCall::is_of_pixels() const { return forward.kernel == Spatial{1, 1, 1} && forward.padding == Spatial{}; }

Outputs ConvolutionGradCall::by_products(IsaSet isa) const {
  const auto last = [&](const at::Tensor& image) {
    return for_onednn(widened(image), at::kBFloat16, isa).contiguous(at::MemoryFormat::ChannelsLast);
  };
  const at::Tensor gradient = last(*grad);
  const at::Tensor w = last(*forward.w);
  at::Tensor x = last(*forward.x);
  const std::int64_t images = x.size(0);
  const std::int64_t channels = x.size(1);
  const at::Tensor g = gradient.permute({0, 2, 3, 1}).reshape({-1, gradient.size(1)});

  at::Tensor of_image;
  if (wants_image && is_of_pixels()) {
    of_image = at::cpu::mm(g, w.reshape({w.size(0), channels})).view({images, forward.out[1], forward.out[2], channels});
    if (forward.out != forward.in) {
      const at::Tensor places = of_image;
      of_image = at::zeros({images, forward.in[1], forward.in[2], channels}, places.options());
      const std::int64_t row = forward.in[2] * channels;
      of_image.as_strided(places.sizes(), {forward.in[1] * row, row * forward.stride[1], channels * forward.stride[2], 1}).copy_(places);
    }
    of_image = of_image.permute({0, 3, 1, 2});
  } else if (wants_image) {
    of_image = std::get<0>(at::compositeexplicitautograd::convolution_backward(
        gradient, x, w, std::nullopt, OnednnSizes(forward.stride, 2), OnednnSizes(forward.padding, 2), OnednnSizes(forward.dilation, 2),
        false, {0, 0}, 1, {true, false, false}));
  }

  const std::int64_t down = forward.padding[1];
  const std::int64_t across = forward.padding[2];
  if (down + across > 0) {
    x = at::compositeexplicitautograd::constant_pad_nd(x, {across, across, down, down}, 0).contiguous(at::MemoryFormat::ChannelsLast);
  }
  const std::int64_t row = x.size(3) * channels;
  const at::Tensor windows = x.as_strided({images, forward.out[1], forward.out[2], forward.kernel[1], forward.kernel[2], channels},
                                          {x.size(2) * row, row * forward.stride[1], channels * forward.stride[2],
                                           row * forward.dilation[1], channels * forward.dilation[2], 1});
  const at::Tensor of_weight = at::cpu::mm(g.t(), windows.reshape({g.size(0), -1}))
                                   .view({w.size(0), forward.kernel[1], forward.kernel[2], channels})
                                   .permute({0, 3, 1, 2});
  return as_stocks(of_weight, of_image, isa);
}

Outputs ConvolutionGradCall::as_stocks(const at::Tensor& of_weight, const at::Tensor& of_image, IsaSet isa) const {
  const auto outside = [&](const at::Tensor& tensor, bool channels_last) {
    if (!tensor.defined()) return tensor;
    const bool float16 = forward.dtype == at::kHalf;  // what reorders knows float32 and bf16
    at::Tensor result = as_stock(tensor, float16 ? at::kFloat : forward.dtype, channels_last, isa);
    if (float16) result = result.to(at::kHalf);
    return forward.dims() == 1 ? result.squeeze(2) : result;
  };
  Outputs outputs(outside(of_weight, forward.channels_last && !weight_is_planar(forward)));
  outputs.more = {outside(of_image, forward.channels_last), at::Tensor()};
  if (wants_bias) {  // summed in float32
    std::vector<std::int64_t> all_but_channels{0};
    for (std::int64_t dim = 2; dim < grad->dim(); ++dim) all_but_channels.push_back(dim);
    outputs.more[1] = at::cpu::sum(*grad, all_but_channels);
  }
  return outputs;
}

Outputs ConvolutionGradCall::run(int candidate, const Packs& /*packs*/, IsaSet isa) const {
  if (candidate == kOnednnBf16Packed) return by_products(isa);
  const bool last = candidate == kOnednnBf16Last;
  const auto inside = [&](const at::Tensor& tensor) {
    if (candidate == kF32Cast) return widened(tensor).to(at::kFloat);
    return last ? for_onednn(widened(tensor), at::kBFloat16, isa) : widened(tensor).to(at::kBFloat16);
  };
  const std::int64_t dims = forward.dims();
  auto [image, weight, unused] = at::compositeexplicitautograd::convolution_backward(
      inside(*grad), inside(*forward.x), inside(*forward.w), std::nullopt, OnednnSizes(forward.stride, dims),
      OnednnSizes(forward.padding, dims), OnednnSizes(forward.dilation, dims), forward.transposed,
      OnednnSizes(forward.output_padding, dims), forward.groups, {wants_image, true, false});
  return as_stocks(weight, image, isa);
}

}  // namespace ipexrun::preload
