// Products of bytes with sums in int32.
#include <ATen/ops/_int_mm_cpu_dispatch.h>

#include "preload/plugin/adapters.h"
#include "preload/plugin/adapters/int_mm_call.h"
#include "preload/plugin/answer.h"

namespace ipexrun::preload::adapters {
namespace {

constexpr std::int64_t kWorthwhileIntMm = 32768;  ///< as for products of floats

}  // namespace

at::Tensor int_mm(const at::Tensor& self, const at::Tensor& mat2) {
  return answer<IntMmCall>(
             Op::kIntMm,
             [&](IntMmCall* call) {
               call->a = &self;
               call->b = &mat2;
               const at::ScalarType dtype = self.scalar_type();
               if (!call->is(Declined::kDtype, (dtype == at::kChar || dtype == at::kByte) && mat2.scalar_type() == at::kChar) ||
                   !call->is(Declined::kKind, plain(self) && plain(mat2)) ||
                   !call->is(Declined::kForm, self.dim() == 2 && mat2.dim() == 2 && self.size(1) == mat2.size(0)))
                 return false;
               const std::int64_t m = self.size(0);
               const std::int64_t k = mat2.size(0);
               const std::int64_t n = mat2.size(1);
               call->lda = self.stride(0);
               return call->is(Declined::kSmall,
                               m > 0 && k > 0 && n > 0 &&
                                   (m * k * n >= kWorthwhileIntMm || tier()->forced.load(std::memory_order_relaxed) != kStock)) &&
                      call->is(Declined::kLayout,
                               self.stride(1) == 1 && call->lda >= k &&
                                   ((mat2.stride(0) == 1 && mat2.stride(1) >= k) || (mat2.stride(1) == 1 && mat2.stride(0) >= n)));
             },
             [&]() -> Outputs { return at::cpu::_int_mm(self, mat2); })
      .first;
}

}  // namespace ipexrun::preload::adapters
