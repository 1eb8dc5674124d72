// convolution_backward, in float32, in bfloat16 with images channels last, or in 16 bits that the CPU does not
// multiply: what autograd calls for
// convolution.cpp's operator.
#include <ATen/core/Tensor.h>
#include <c10/core/SymIntArrayRef.h>

#include <ATen/ops/convolution_backward_compositeexplicitautograd_dispatch.h>

#include "preload/plugin/adapters.h"
#include "preload/plugin/adapters/convolution_grad_call.h"
#include "preload/plugin/adapters/convolution_read.h"
#include "preload/plugin/adapters/images.h"
#include "preload/plugin/answer.h"
#include "preload/plugin/candidate_kernels.h"

namespace ipexrun::preload::adapters {
namespace {

/// Multiply-adds of the forward convolution below which copies in bf16 cost as much as they save.
constexpr std::int64_t kWorthwhileGrad = 500'000;

bool in_hardware(at::ScalarType dtype) { return dtype == at::kFloat || half_is_native(dtype, tier()->options.isa); }

bool describe_operands(ConvolutionGradCall* call, const at::Tensor& grad, const at::Tensor& x, const at::Tensor& w) {
  const std::int64_t dim = x.dim();
  if (dim < 3 || dim > 5 || w.dim() != dim || grad.dim() != dim) return false;
  const at::ScalarType dtype = x.scalar_type();
  const bool alike = product_dtype_fits(dtype) && grad.scalar_type() == dtype && w.scalar_type() == dtype;
  if (!call->is(Declined::kDtype, alike) || !call->is(Declined::kKind, plain(grad) && plain(x) && plain(w))) return false;
  if (!call->is(Declined::kForm, grad.numel() > 0 && x.numel() > 0 && w.numel() > 0)) return false;
  call->grad = &grad;
  call->forward.op = call->op;
  call->forward.x = &x;
  call->forward.w = &w;
  call->forward.dtype = dtype;
  call->forward.channels_last = asks_for_channels_last(x) || asks_for_channels_last(w);
  const auto last = [](const at::Tensor& image) { return image.dim() == 4 && image.is_contiguous(at::MemoryFormat::ChannelsLast); };
  return call->is(Declined::kLayout, !in_hardware(dtype) || dtype == at::kFloat || (last(x) && last(grad)));
}

bool worthwhile(const ConvolutionGradCall& call) {
  const ConvolutionCall& forward = call.forward;
  const Spatial& windows = forward.transposed ? forward.in : forward.out;
  const std::int64_t per_window = forward.depth() * (forward.transposed ? forward.w->size(1) : forward.out_channels());
  return forward.x->size(0) * windows[0] * windows[1] * windows[2] * per_window >= kWorthwhileGrad ||
         tier()->forced.load(std::memory_order_relaxed) != kStock;
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(const at::Tensor& grad_output, const at::Tensor& input,
                                                                    const at::Tensor& weight, at::OptionalSymIntArrayRef bias_sizes,
                                                                    c10::SymIntArrayRef stride, c10::SymIntArrayRef padding,
                                                                    c10::SymIntArrayRef dilation, bool transposed,
                                                                    c10::SymIntArrayRef output_padding, c10::SymInt groups,
                                                                    std::array<bool, 3> output_mask) {
  Outputs outputs = answer<ConvolutionGradCall>(
      Op::kConvolutionBackward,
      [&](ConvolutionGradCall* call) {
        if (!output_mask[1] || !describe_operands(call, grad_output, input, weight)) return false;
        ConvolutionCall& forward = call->forward;
        const auto group_count = groups.maybe_as_int();
        if (!group_count) return false;
        forward.groups = *group_count;
        forward.transposed = transposed;
        const std::int64_t dims = forward.dims();
        if (!read(&forward.stride, stride, dims) || !read(&forward.padding, padding, dims) || !read(&forward.dilation, dilation, dims)) {
          return false;
        }
        if (transposed && !(read(&forward.output_padding, output_padding, dims) && not_negative(forward.output_padding))) return false;
        if (!positive(forward.stride) || !positive(forward.dilation) || !not_negative(forward.padding)) return false;
        forward.describe_sizes();
        if (!forward.sizes_fit() || !forward.meets_image() || (forward.depthwise() && in_hardware(forward.dtype))) return false;
        bool fits = grad_output.size(0) == input.size(0) && grad_output.size(1) == forward.out_channels();
        for (std::int64_t i = 0; i < dims; ++i)
          fits = fits && grad_output.size(2 + i) == forward.out[static_cast<std::size_t>(3 - dims + i)];
        call->wants_image = output_mask[0];
        call->wants_bias = output_mask[2];
        call->training = true;
        return fits && call->is(Declined::kSmall, worthwhile(*call));
      },
      [&]() -> Outputs {
        auto [image, of_weight, bias] = at::compositeexplicitautograd::convolution_backward_symint(
            grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, output_mask);
        Outputs stock(std::move(of_weight));
        stock.more = {std::move(image), std::move(bias)};
        return stock;
      });
  return {std::move(outputs.more[0]), std::move(outputs.first), std::move(outputs.more[1])};
}

}  // namespace ipexrun::preload::adapters
