// _scaled_dot_product_flash_attention_for_cpu: what scaled_dot_product_attention comes down to where it has a fused kernel. The
// logsumexp that it returns beside the result is what stock's backward wants.
// Before the generated header, which names it and does not include it.
#include <ATen/core/Tensor.h>

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_cpu_dispatch.h>

#include <cmath>

#include "preload/plugin/adapters.h"
#include "preload/plugin/adapters/attention_call.h"
#include "preload/plugin/answer.h"

namespace ipexrun::preload::adapters {
namespace {

/// Multiply-adds of one of the two products below which stock needs about what finding the site costs.
constexpr std::int64_t kWorthwhileProducts = 16384;

/// [batch, heads, rows, depth], the depth dense.
bool describe_operand(AttentionCall* call, const at::Tensor& tensor) {
  return call->is(Declined::kForm, tensor.dim() == 4) && call->is(Declined::kDtype, tensor.scalar_type() == call->q->scalar_type()) &&
         call->is(Declined::kKind, plain(tensor)) && call->is(Declined::kLayout, tensor.size(3) == 1 || tensor.stride(3) == 1);
}

/// What stock does with other sizes is its own business.
bool describe_sizes(AttentionCall* call) {
  const at::Tensor& q = *call->q;
  const at::Tensor& k = *call->k;
  if (!call->is(Declined::kForm, q.numel() > 0 && k.numel() > 0 && k.sizes() == call->v->sizes() && k.size(0) == q.size(0) &&
                                     k.size(3) == q.size(3) && q.size(1) % k.size(1) == 0)) {
    return false;
  }
  return call->is(Declined::kSmall,
                  q.numel() >= kWorthwhileProducts / k.size(2) || tier()->forced.load(std::memory_order_relaxed) != kStock);
}

/// [rows, keys] or [batch, heads, rows, keys], each of the size of the scores or 1.
bool describe_mask(AttentionCall* call, const std::optional<at::Tensor>& mask) {
  if (!mask.has_value() || !mask->defined()) return true;
  const std::int64_t sizes[4] = {call->q->size(0), call->q->size(1), call->q->size(2), call->k->size(2)};
  const std::int64_t dims = mask->dim();
  if (!call->is(Declined::kForm, dims == 2 || dims == 4) || !call->is(Declined::kKind, plain(*mask))) return false;
  if (!call->is(Declined::kDtype, mask->scalar_type() == at::kFloat || mask->scalar_type() == call->q->scalar_type())) return false;
  for (std::int64_t i = 0; i < dims; ++i) {
    const std::int64_t size = mask->size(i);
    if (!call->is(Declined::kForm, size == 1 || size == sizes[4 - dims + i])) return false;
    call->mask_strides[static_cast<std::size_t>(4 - dims + i)] = size == 1 ? 0 : mask->stride(i);
  }
  call->mask = &*mask;
  return call->is(Declined::kLayout, call->mask_strides[3] == 0 || call->mask_strides[3] == 1);
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> scaled_dot_product_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                                                double dropout_p, bool is_causal,
                                                                const std::optional<at::Tensor>& attn_mask, std::optional<double> scale) {
  Outputs outputs = answer<AttentionCall>(
      Op::kScaledDotProductAttention,
      [&](AttentionCall* call) {
        call->q = &query;
        call->k = &key;
        call->v = &value;
        call->causal = is_causal;
        if (dropout_p != 0.0 || !call->is(Declined::kDtype, dtype_fits(query.scalar_type()))) return false;
        if (!describe_operand(call, query) || !describe_operand(call, key) || !describe_operand(call, value)) return false;
        if (!describe_sizes(call) || !describe_mask(call, attn_mask)) return false;
        call->scale = static_cast<float>(scale.has_value() ? *scale : 1.0 / std::sqrt(static_cast<double>(query.size(3))));
        return call->is(Declined::kForm, call->scale != 0);  // 0 times an infinity or NaN is not NaN in stock
      },
      [&]() -> Outputs {
        auto [result, logsumexp] =
            at::cpu::_scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout_p, is_causal, attn_mask, scale);
        Outputs stock(std::move(result));
        stock.more = {std::move(logsumexp)};
        return stock;
      });
  return {std::move(outputs.first), std::move(outputs.more[0])};
}

}  // namespace ipexrun::preload::adapters
