// upsample_nearest2d, its exact form, upsample_bilinear2d and upsample_bicubic2d of contiguous images: what F.interpolate calls. With
// anti-aliasing it calls others. Channels last and the out= overloads stay stock's.
// Before the generated headers, which name it and do not include it.
#include <c10/core/SymIntArrayRef.h>

#include <ATen/ops/_upsample_nearest_exact2d_cpu_dispatch.h>
#include <ATen/ops/upsample_bicubic2d_cpu_dispatch.h>
#include <ATen/ops/upsample_bilinear2d_cpu_dispatch.h>
#include <ATen/ops/upsample_nearest2d_cpu_dispatch.h>

#include "preload/plugin/adapters.h"
#include "preload/plugin/adapters/resize_call.h"
#include "preload/plugin/answer.h"

namespace ipexrun::preload::adapters {
namespace {

/// Elements of the output below which stock needs about what finding the site and making the tables costs.
constexpr std::int64_t kWorthwhileResize = 2048;
constexpr std::int64_t kMaxSize = std::int64_t{1} << 24;

bool size_of(const c10::SymInt& from, std::int64_t* to) {
  const auto size = from.maybe_as_int();
  if (!size || *size < 1 || *size >= kMaxSize) return false;
  *to = *size;
  return true;
}

bool describe(ResizeCall* call, const at::Tensor& x, ResizeKind kind, c10::SymIntArrayRef size, bool align_corners,
              std::optional<double> scale_height, std::optional<double> scale_width) {
  call->x = &x;
  call->kind = kind;
  call->align_corners = align_corners;
  call->scale_height = scale_height;
  call->scale_width = scale_width;
  if (!call->is(Declined::kDtype, dtype_fits(x.scalar_type())) || !call->is(Declined::kKind, plain(x))) return false;
  call->declined = Declined::kForm;
  if (x.dim() != 4 || x.numel() == 0 || size.size() != 2 || x.size(2) >= kMaxSize || x.size(3) >= kMaxSize) return false;
  if (!size_of(size[0], &call->out_height) || !size_of(size[1], &call->out_width)) return false;
  const std::int64_t written = x.size(0) * x.size(1) * call->out_height * call->out_width;
  return call->is(Declined::kSmall, written >= kWorthwhileResize || tier()->forced.load(std::memory_order_relaxed) != kStock) &&
         call->is(Declined::kLayout, x.is_contiguous() && x.suggest_memory_format() == at::MemoryFormat::Contiguous);
}

}  // namespace

at::Tensor upsample_nearest2d(const at::Tensor& self, c10::SymIntArrayRef output_size, std::optional<double> scales_h,
                              std::optional<double> scales_w) {
  return answer<ResizeCall>(
             Op::kUpsampleNearest2d,
             [&](ResizeCall* call) { return describe(call, self, ResizeKind::kNearest, output_size, false, scales_h, scales_w); },
             [&]() -> Outputs { return at::cpu::upsample_nearest2d_symint(self, output_size, scales_h, scales_w); })
      .first;
}

at::Tensor upsample_nearest_exact2d(const at::Tensor& self, c10::SymIntArrayRef output_size, std::optional<double> scales_h,
                                    std::optional<double> scales_w) {
  return answer<ResizeCall>(
             Op::kUpsampleNearestExact2d,
             [&](ResizeCall* call) { return describe(call, self, ResizeKind::kNearestExact, output_size, false, scales_h, scales_w); },
             [&]() -> Outputs { return at::cpu::_upsample_nearest_exact2d_symint(self, output_size, scales_h, scales_w); })
      .first;
}

at::Tensor upsample_bilinear2d(const at::Tensor& self, c10::SymIntArrayRef output_size, bool align_corners, std::optional<double> scales_h,
                               std::optional<double> scales_w) {
  return answer<ResizeCall>(
             Op::kUpsampleBilinear2d,
             [&](ResizeCall* call) { return describe(call, self, ResizeKind::kLinear, output_size, align_corners, scales_h, scales_w); },
             [&]() -> Outputs { return at::cpu::upsample_bilinear2d_symint(self, output_size, align_corners, scales_h, scales_w); })
      .first;
}

at::Tensor upsample_bicubic2d(const at::Tensor& self, c10::SymIntArrayRef output_size, bool align_corners, std::optional<double> scales_h,
                              std::optional<double> scales_w) {
  return answer<ResizeCall>(
             Op::kUpsampleBicubic2d,
             [&](ResizeCall* call) { return describe(call, self, ResizeKind::kCubic, output_size, align_corners, scales_h, scales_w); },
             [&]() -> Outputs { return at::cpu::upsample_bicubic2d_symint(self, output_size, align_corners, scales_h, scales_w); })
      .first;
}

}  // namespace ipexrun::preload::adapters
