// _scaled_dot_product_flash_attention_for_cpu: what scaled_dot_product_attention comes down to where it has a fused kernel. The
// logsumexp that it returns beside the result is what stock's backward wants.
// Before the generated header, which names it and does not include it.
#include <ATen/core/Tensor.h>

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_cpu_dispatch.h>

#include "preload/plugin/adapters.h"
#include "preload/plugin/adapters/attention_call.h"
#include "preload/plugin/answer.h"

namespace ipexrun::preload::adapters {
std::tuple<at::Tensor, at::Tensor> scaled_dot_product_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                                                double dropout_p, bool is_causal,
                                                                const std::optional<at::Tensor>& attn_mask, std::optional<double> scale) {
  Outputs outputs = answer<AttentionCall>(
      Op::kScaledDotProductAttention,
      [&](AttentionCall* call) { return call->describe(query, key, value, dropout_p, is_causal, attn_mask, scale) && call->worthwhile(); },
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
