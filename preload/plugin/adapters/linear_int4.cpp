// Products with weights of 4 bits, a scale and a zero for each group of them (weight-only quantization).
#include "preload/plugin/adapters/linear_int4_call.h"

#include <ATen/ops/_convert_weight_to_int4pack_for_cpu_cpu_dispatch.h>
#include <ATen/ops/_weight_int4pack_mm_for_cpu_cpu_dispatch.h>
#include <ATen/ops/empty_cpu_dispatch.h>

#include "preload/plugin/adapters.h"
#include "preload/plugin/answer.h"

namespace ipexrun::preload::adapters {
namespace {

/// Stock packs for the instruction set it runs on: ours reads one of its layouts. Asked of stock itself, by a block with different numbers.
bool stock_packs_as_we_read() {
  static const bool known = [] {
    try {
      constexpr std::int64_t kLength = 32;
      at::Tensor numbers = at::cpu::empty({kernels::kInt4Columns, kLength}, at::TensorOptions().dtype(at::kInt));
      const auto number = [](std::int64_t column, std::int64_t i) {
        return static_cast<std::int32_t>((column * 7 + column / 16 + i * 3) % 16);
      };
      for (std::int64_t at = 0; at < numbers.numel(); ++at)
        numbers.mutable_data_ptr<std::int32_t>()[at] = number(at / kLength, at % kLength);
      const at::Tensor packed = at::cpu::_convert_weight_to_int4pack_for_cpu(numbers, 2);
      if (packed.scalar_type() != at::kByte || packed.numel() != numbers.numel() / 2) return false;
      const auto* bytes = packed.const_data_ptr<std::uint8_t>();
      for (std::int64_t at = 0; at < packed.numel(); ++at) {
        const std::int64_t column = at % 32;
        if (bytes[at] != (number(column, at / 32) | number(column + 32, at / 32) << 4)) return false;
      }
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }();
  return known;
}

}  // namespace

at::Tensor weight_int4pack_mm(const at::Tensor& self, const at::Tensor& mat2, std::int64_t group, const at::Tensor& pairs) {
  return answer<LinearInt4Call>(
             Op::kWeightInt4packMm,
             [&](LinearInt4Call* call) {
               call->a = &self;
               call->b = &mat2;
               call->pairs = &pairs;
               call->group = group;
               if (!call->is(Declined::kDtype, self.scalar_type() == at::kBFloat16 && mat2.scalar_type() == at::kByte &&
                                                   pairs.scalar_type() == at::kBFloat16) ||
                   !call->is(Declined::kKind, plain(self) && plain(mat2) && plain(pairs)))
                 return false;
               return call->is(Declined::kForm,
                               self.dim() == 2 && mat2.dim() == 2 && pairs.dim() == 3 && self.numel() > 0 && mat2.numel() > 0 &&
                                   mat2.size(1) * 2 == self.size(1) && (group == 32 || group == 64 || group == 128 || group == 256) &&
                                   self.size(1) % group == 0 && mat2.size(0) % kernels::kInt4Columns == 0 &&
                                   pairs.size(0) == self.size(1) / group && pairs.size(1) == mat2.size(0) && pairs.size(2) == 2) &&
                      call->is(Declined::kLayout,
                               self.is_contiguous() && mat2.is_contiguous() && pairs.is_contiguous() && stock_packs_as_we_read());
             },
             [&]() -> Outputs { return at::cpu::_weight_int4pack_mm_for_cpu(self, mat2, group, pairs); })
      .first;
}

}  // namespace ipexrun::preload::adapters
