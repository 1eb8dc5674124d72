// max_pool2d_with_indices, avg_pool2d and _adaptive_avg_pool2d of contiguous images: stock's code for these is not vectorized. Channels
// last is (along the channels) and stays stock's, as do the out= overloads.
// Before the generated header, which names it and does not include it.
#include <c10/core/SymIntArrayRef.h>

#include <ATen/native/Pool.h>
#include <ATen/ops/_adaptive_avg_pool2d_cpu_dispatch.h>
#include <ATen/ops/avg_pool2d_cpu_dispatch.h>
#include <ATen/ops/max_pool2d_with_indices_cpu_dispatch.h>

#include "preload/plugin/adapters.h"
#include "preload/plugin/adapters/pool_call.h"
#include "preload/plugin/answer.h"

namespace ipexrun::preload::adapters {
namespace {

/// Elements of the input below which stock needs about what finding the site costs.
constexpr std::int64_t kWorthwhilePool = 1024;
constexpr std::int64_t kMaxPlane = std::int64_t{1} << 31;   ///< indices are counted in 32 bits
constexpr std::int64_t kMaxWindow = std::int64_t{1} << 24;  ///< how many a mean counts is exact in fp32

bool describe_x(PoolCall* call, const at::Tensor& x, PoolKind kind) {
  call->x = &x;
  call->kind = kind;
  if (!call->is(Declined::kDtype, dtype_fits(x.scalar_type())) || !call->is(Declined::kKind, plain(x))) return false;
  if (!call->is(Declined::kForm, (x.dim() == 3 || x.dim() == 4) && x.numel() > 0)) return false;
  if (!call->is(Declined::kSmall, x.numel() >= kWorthwhilePool || tier()->forced.load(std::memory_order_relaxed) != kStock)) return false;
  if (!call->is(Declined::kLayout, x.is_contiguous() && x.suggest_memory_format() == at::MemoryFormat::Contiguous)) return false;
  kernels::PoolArgs& args = call->args;
  args.dtype = x.scalar_type() == at::kFloat ? kernels::DType::kF32 : kernels::DType::kBf16;
  args.height = x.size(-2);
  args.width = x.size(-1);
  args.planes = x.numel() / args.height / args.width;
  return call->is(Declined::kForm, args.height < kMaxPlane / args.width);
}

/// One number for both dimensions or one for each; false for what stock raises.
bool read_pair(at::IntArrayRef from, std::int64_t* down, std::int64_t* across) {
  if (from.size() != 1 && from.size() != 2) return false;
  *down = from[0];
  *across = from[from.size() - 1];
  return true;
}

/// False where stock raises: its output size would, too.
bool read_output(const kernels::PoolWindow& window, std::int64_t size, bool ceil_mode, std::int64_t* out) {
  if (window.size <= 0 || window.stride <= 0 || window.dilation <= 0 || window.pad < 0 || window.pad > window.size / 2) return false;
  if (window.size >= kMaxWindow || window.stride >= kMaxWindow || window.dilation >= kMaxWindow) return false;
  *out = at::native::pooling_output_shape_pad_lr<std::int64_t>(size, window.size, window.pad, window.pad, window.stride, window.dilation,
                                                               ceil_mode);
  return *out >= 1 && *out < kMaxWindow;
}

/// Scratch holds as many padded rows as a window reaches over: windows far larger than the image are left to stock.
bool moderate(const kernels::PoolWindow& window, std::int64_t size) { return (window.size - 1) * window.dilation < 2 * size + 2; }

bool describe_windows(PoolCall* call, at::IntArrayRef kernel, at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation,
                      bool ceil_mode) {
  kernels::PoolWindow& down = call->args.down;
  kernels::PoolWindow& across = call->args.across;
  call->declined = Declined::kForm;
  return read_pair(kernel, &down.size, &across.size) && read_pair(stride.empty() ? kernel : stride, &down.stride, &across.stride) &&
         read_pair(padding, &down.pad, &across.pad) && read_pair(dilation, &down.dilation, &across.dilation) &&
         read_output(down, call->args.height, ceil_mode, &call->args.out_height) &&
         read_output(across, call->args.width, ceil_mode, &call->args.out_width) && moderate(down, call->args.height) &&
         moderate(across, call->args.width) && down.size * across.size < kMaxWindow;
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> max_pool2d_with_indices(const at::Tensor& self, at::IntArrayRef kernel_size, at::IntArrayRef stride,
                                                           at::IntArrayRef padding, at::IntArrayRef dilation, bool ceil_mode) {
  Outputs outputs = answer<PoolCall>(
      Op::kMaxPool2d,
      [&](PoolCall* call) {
        return describe_x(call, self, PoolKind::kMax) && describe_windows(call, kernel_size, stride, padding, dilation, ceil_mode);
      },
      [&]() -> Outputs {
        auto [values, indices] = at::cpu::max_pool2d_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode);
        Outputs stock(std::move(values));
        stock.more = {std::move(indices)};
        return stock;
      });
  return {std::move(outputs.first), std::move(outputs.more[0])};
}

at::Tensor avg_pool2d(const at::Tensor& self, at::IntArrayRef kernel_size, at::IntArrayRef stride, at::IntArrayRef padding, bool ceil_mode,
                      bool count_include_pad, std::optional<std::int64_t> divisor_override) {
  return answer<PoolCall>(
             Op::kAvgPool2d,
             [&](PoolCall* call) {
               call->args.count_padding = count_include_pad;
               call->args.divisor = divisor_override.value_or(0);
               if (divisor_override && (*divisor_override <= 0 || *divisor_override >= kMaxWindow)) return false;
               return describe_x(call, self, PoolKind::kAverage) && describe_windows(call, kernel_size, stride, padding, {1, 1}, ceil_mode);
             },
             [&]() -> Outputs {
               return at::cpu::avg_pool2d(self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override);
             })
      .first;
}

at::Tensor adaptive_avg_pool2d(const at::Tensor& self, c10::SymIntArrayRef output_size) {
  return answer<PoolCall>(
             Op::kAdaptiveAvgPool2d,
             [&](PoolCall* call) {
               if (!describe_x(call, self, PoolKind::kAdaptive)) return false;
               call->declined = Declined::kForm;
               if (output_size.size() != 2) return false;
               const auto height = output_size[0].maybe_as_int();
               const auto width = output_size[1].maybe_as_int();
               if (!height || !width || *height < 1 || *width < 1 || *height >= kMaxWindow || *width >= kMaxWindow) return false;
               call->args.out_height = *height;
               call->args.out_width = *width;
               return (call->args.height / *height + 2) * (call->args.width / *width + 2) < kMaxWindow;
             },
             [&]() -> Outputs { return at::cpu::_adaptive_avg_pool2d_symint(self, output_size); })
      .first;
}

}  // namespace ipexrun::preload::adapters
