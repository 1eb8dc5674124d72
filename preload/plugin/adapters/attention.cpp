// _scaled_dot_product_flash_attention_for_cpu: what scaled_dot_product_attention comes down to where it has a fused kernel. The
// logsumexp that it returns beside the result is what stock's backward wants.
// Before the generated header, which names it and does not include it.
#include <ATen/core/Tensor.h>

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_cpu_dispatch.h>
#include <c10/core/GradMode.h>

#include "preload/plugin/adapters.h"
#include "preload/plugin/adapters/attention_call.h"
#include "preload/plugin/answer.h"

namespace ipexrun::preload::adapters {
namespace {

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
  return call->worthwhile();
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
        call->wants_grad = query.scalar_type() == at::kFloat && c10::GradMode::is_enabled() &&
                           (query.requires_grad() || key.requires_grad() || value.requires_grad());
        if (!describe_sizes(call) || !call->describe_mask(attn_mask)) return false;
        return call->describe_scale(scale);
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
