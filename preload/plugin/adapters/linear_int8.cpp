// Products with int8 weights and a scale for each of their rows (weight-only quantization).
#include "preload/plugin/adapters/linear_int8_call.h"

#include <ATen/ops/_weight_int8pack_mm_cpu_dispatch.h>

#include "preload/plugin/adapters.h"
#include "preload/plugin/answer.h"

namespace ipexrun::preload::adapters {

at::Tensor weight_int8pack_mm(const at::Tensor& self, const at::Tensor& mat2, const at::Tensor& scales) {
  return answer<LinearInt8Call>(
             Op::kWeightInt8packMm,
             [&](LinearInt8Call* call) {
               call->a = &self;
               call->b = &mat2;
               call->scales = &scales;
               if (!call->is(Declined::kDtype, dtype_fits(self.scalar_type()) && mat2.scalar_type() == at::kChar &&
                                                   scales.scalar_type() == self.scalar_type()) ||
                   !call->is(Declined::kKind, plain(self) && plain(mat2) && plain(scales)))
                 return false;
               return call->is(Declined::kForm, self.dim() == 2 && mat2.dim() == 2 && scales.dim() == 1 && self.size(1) == mat2.size(1) &&
                                                    scales.size(0) == mat2.size(0) && self.numel() > 0 && mat2.numel() > 0) &&
                      call->is(Declined::kLayout, self.is_contiguous() && mat2.is_contiguous() && scales.is_contiguous());
             },
             [&]() -> Outputs { return at::cpu::_weight_int8pack_mm(self, mat2, scales); })
      .first;
}

}  // namespace ipexrun::preload::adapters
