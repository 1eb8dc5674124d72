// Sites and candidates of the gradients of a convolution: stock's own operator on bf16 copies, as the images lie or channels last.
#include "preload/plugin/adapters/convolution_grad_call.h"

#include <ATen/native/ConvUtils.h>
#include <c10/core/SymIntArrayRef.h>

#include <ATen/ops/convolution_backward_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/sum_cpu_dispatch.h>

#include <array>

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
  if (!forward.channels_last || forward.dims() != 2 || w.size(2) * w.size(3) != 1) return false;
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

std::vector<int> ConvolutionGradCall::candidates(const TierOptions& options) const {
  if (!bf16_inside_allowed(options)) return {};
  return {kOnednnBf16Cast, kOnednnBf16Last};
}

Outputs ConvolutionGradCall::run(int candidate, const Packs& /*packs*/, IsaSet isa) const {
  const bool last = candidate == kOnednnBf16Last;
  const auto inside = [&](const at::Tensor& tensor) {
    return last ? for_onednn(widened(tensor), at::kBFloat16, isa) : widened(tensor).to(at::kBFloat16);
  };
  const std::int64_t dims = forward.dims();
  auto [image, weight, unused] = at::compositeexplicitautograd::convolution_backward(
      inside(*grad), inside(*forward.x), inside(*forward.w), std::nullopt, OnednnSizes(forward.stride, dims),
      OnednnSizes(forward.padding, dims), OnednnSizes(forward.dilation, dims), false, std::vector<std::int64_t>(dims == 3 ? 3 : 2, 0),
      forward.groups, {wants_image, true, false});
  const auto outside = [&](const at::Tensor& tensor, bool channels_last) {
    if (!tensor.defined()) return tensor;
    const at::Tensor result = as_stock(tensor, at::kFloat, channels_last, isa);
    return dims == 1 ? result.squeeze(2) : result;
  };
  Outputs outputs(outside(weight, forward.channels_last && !weight_is_planar(forward)));
  outputs.more = {outside(image, forward.channels_last), at::Tensor()};
  if (wants_bias) {  // in float32, as the sum that it is
    std::vector<std::int64_t> all_but_channels{0};
    for (std::int64_t dim = 2; dim < grad->dim(); ++dim) all_but_channels.push_back(dim);
    outputs.more[1] = at::cpu::sum(*grad, all_but_channels);
  }
  return outputs;
}

}  // namespace ipexrun::preload
