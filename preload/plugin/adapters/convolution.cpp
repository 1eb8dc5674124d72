// convolution, plain and transposed, of 1 to 3 spatial dimensions. Stands before stock's composite kernel.
// Before the generated header, which names it and does not include it.
#include <c10/core/SymIntArrayRef.h>

#include <ATen/ops/convolution_compositeexplicitautograd_dispatch.h>

#include "preload/plugin/adapters.h"
#include "preload/plugin/adapters/convolution_call.h"
#include "preload/plugin/adapters/convolution_operators.h"
#include "preload/plugin/adapters/convolution_read.h"
#include "preload/plugin/adapters/images.h"
#include "preload/plugin/adapters/linear_call.h"
#include "preload/plugin/answer.h"
#include "preload/plugin/candidate_kernels.h"

namespace ipexrun::preload::adapters {
namespace {

/// Multiply-adds below which a call is left alone, because changing layout and dtype costs as much.
constexpr std::int64_t kWorthwhileProducts = 500'000;
/// The same where our kernels are offered, which are done before stock's have begun: each channel has a window of its own, or any window on
/// AMX, or of 16 bits where the CPU has no such products.
constexpr std::int64_t kWorthwhileDepthwise = 2'000;
constexpr std::int64_t kWorthwhileBesideSlow = 50'000;

bool describe_operands(ConvolutionCall* call, const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& bias) {
  const std::int64_t dim = x.dim();
  if (dim < 3 || dim > 5 || w.dim() != dim) return false;
  if (!call->is(Declined::kDtype, product_dtype_fits(x.scalar_type()) && w.scalar_type() == x.scalar_type())) return false;
  if (!call->is(Declined::kKind, plain(x) && plain(w)) || !call->is(Declined::kForm, x.numel() > 0 && w.numel() > 0)) return false;
  call->x = &x;
  call->w = &w;
  call->dtype = x.scalar_type();
  call->training = is_training(*call, x, w);
  if (call->training && !call->backward) call->steps = weight_steps(w);
  if (bias.has_value() && bias->defined()) {
    if (bias->dim() != 1 || bias->scalar_type() != call->dtype || !plain(*bias)) return false;
    call->bias = &*bias;
  }
  call->channels_last = asks_for_channels_last(x) || asks_for_channels_last(w);
  return true;
}

bool worthwhile(const ConvolutionCall& call) {
  const std::int64_t pixels = call.transposed ? call.in[0] * call.in[1] * call.in[2] : call.out[0] * call.out[1] * call.out[2];
  const std::int64_t products = call.x->size(0) * pixels * call.depth() * (call.transposed ? call.w->size(1) : call.out_channels());
  const bool own = !call.transposed && isa_has(tier()->options.isa, kIsaAmxBf16);
  const bool slow = call.dtype != at::kFloat && !half_is_native(call.dtype, tier()->options.isa);  // stock's loop over elements
  const std::int64_t least = call.depthwise() ? kWorthwhileDepthwise : own || slow ? kWorthwhileBesideSlow : kWorthwhileProducts;
  return products >= least || tier()->forced.load(std::memory_order_relaxed) != kStock;
}

}  // namespace

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias, c10::SymIntArrayRef stride,
                       c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed, c10::SymIntArrayRef output_padding,
                       c10::SymInt groups) {
  return answer<ConvolutionCall>(
             Op::kConvolution,
             [&](ConvolutionCall* call) {
               if (!describe_operands(call, input, weight, bias)) return false;
               const auto group_count = groups.maybe_as_int();
               if (!group_count) return false;
               call->groups = *group_count;
               call->transposed = transposed;
               const std::int64_t dims = call->dims();
               if (!read(&call->stride, stride, dims) || !read(&call->padding, padding, dims) || !read(&call->dilation, dilation, dims)) {
                 return false;
               }
               if (transposed && !read(&call->output_padding, output_padding, dims)) return false;
               if (!positive(call->stride) || !positive(call->dilation)) return false;
               if (!not_negative(call->padding) || !not_negative(call->output_padding)) return false;
               call->describe_sizes();
               return call->sizes_fit() && call->is(Declined::kForm, call->meets_image()) && call->is(Declined::kSmall, worthwhile(*call));
             },
             [&]() -> Outputs {
               return at::compositeexplicitautograd::convolution_symint(input, weight, bias, stride, padding, dilation, transposed,
                                                                        output_padding, groups);
             })
      .first;
}

void find_operators() {
  find_linear_operators();
  static_cast<void>(convolution_operators());
}

}  // namespace ipexrun::preload::adapters
