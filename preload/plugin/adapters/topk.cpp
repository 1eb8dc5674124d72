// topk along the last dimension of contiguous float32, sorted. bfloat16 rows are full of equal elements, whose order is stock's alone.
// The overload into out= stays stock's.
// Before the generated header, which names it and does not include it.
#include <c10/core/SymInt.h>

#include <ATen/ops/topk_cpu_dispatch.h>

#include "preload/plugin/adapters.h"
#include "preload/plugin/adapters/topk_call.h"
#include "preload/plugin/answer.h"

namespace ipexrun::preload::adapters {
namespace {

/// Rows shorter than this are sorted in about the time that their set-up takes.
constexpr std::int64_t kWorthwhileColumns = 256;
constexpr std::int64_t kMaxColumns = std::int64_t{1} << 31;
/// Of more than this part of a row hardly an element is passed over.
constexpr std::int64_t kPart = 4;

}  // namespace

std::tuple<at::Tensor, at::Tensor> topk(const at::Tensor& self, c10::SymInt k, std::int64_t dim, bool largest, bool sorted) {
  Outputs outputs = answer<TopkCall>(
      Op::kTopk,
      [&](TopkCall* call) {
        call->x = &self;
        call->largest = largest;
        if (!call->is(Declined::kDtype, self.scalar_type() == at::kFloat) || !call->is(Declined::kKind, plain(self))) return false;
        const auto count = k.maybe_as_int();
        if (!call->is(Declined::kForm, sorted && count && *count > 0 && self.dim() > 0 && (dim == -1 || dim == self.dim() - 1)))
          return false;
        call->k = *count;
        call->columns = self.size(-1);
        if (!call->is(Declined::kSmall, call->columns >= kWorthwhileColumns)) return false;
        call->rows = self.numel() / call->columns;
        return call->is(Declined::kForm, call->rows > 0 && call->columns < kMaxColumns && call->k <= call->columns / kPart) &&
               call->is(Declined::kLayout, self.is_contiguous());
      },
      [&]() -> Outputs {
        auto [values, indices] = at::cpu::topk_symint(self, k, dim, largest, sorted);
        Outputs stock(std::move(values));
        stock.more = {std::move(indices)};
        return stock;
      });
  return {std::move(outputs.first), std::move(outputs.more[0])};
}

}  // namespace ipexrun::preload::adapters
