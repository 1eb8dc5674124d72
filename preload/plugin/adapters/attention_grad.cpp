// _scaled_dot_product_flash_attention_for_cpu_backward: what autograd calls for the attention of attention.cpp, with the result and
// logsumexp that stock or ours left there.
// Before the generated header, which names it and does not include it.
#include <ATen/core/Tensor.h>

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward_cpu_dispatch.h>

#include "preload/plugin/adapters.h"
#include "preload/plugin/adapters/attention_grad_call.h"
#include "preload/plugin/answer.h"

namespace ipexrun::preload::adapters {
namespace {

/// [batch, heads, rows, depth] of the sizes of `like`, the depth dense.
bool describe_operand(AttentionGradCall* call, const at::Tensor& tensor, const at::Tensor& like) {
  return call->is(Declined::kForm, tensor.defined() && tensor.dim() == 4 && tensor.sizes() == like.sizes()) &&
         call->is(Declined::kDtype, tensor.scalar_type() == like.scalar_type()) && call->is(Declined::kKind, plain(tensor)) &&
         call->is(Declined::kLayout, tensor.size(3) == 1 || tensor.stride(3) == 1);
}

/// What stock does with other sizes is its own business.
bool describe_sizes(AttentionGradCall* call) {
  const at::Tensor& q = *call->q;
  const at::Tensor& k = *call->k;
  if (!call->is(Declined::kForm,
                q.numel() > 0 && k.numel() > 0 && k.size(0) == q.size(0) && k.size(1) == q.size(1) && k.size(3) == q.size(3))) {
    return false;
  }
  const at::Tensor& lse = *call->logsumexp;
  if (!call->is(Declined::kForm, lse.defined() && lse.dim() == 3 && lse.sizes() == q.sizes().slice(0, 3)) ||
      !call->is(Declined::kDtype, lse.scalar_type() == at::kFloat) || !call->is(Declined::kKind, plain(lse))) {
    return false;
  }
  return call->worthwhile();
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> scaled_dot_product_attention_backward(const at::Tensor& grad_out, const at::Tensor& query,
                                                                                     const at::Tensor& key, const at::Tensor& value,
                                                                                     const at::Tensor& out, const at::Tensor& logsumexp,
                                                                                     double dropout_p, bool is_causal,
                                                                                     const std::optional<at::Tensor>& attn_mask,
                                                                                     std::optional<double> scale) {
  Outputs outputs = answer<AttentionGradCall>(
      Op::kScaledDotProductAttentionBackward,
      [&](AttentionGradCall* call) {
        call->grad = &grad_out;
        call->q = &query;
        call->k = &key;
        call->v = &value;
        call->result = &out;
        call->logsumexp = &logsumexp;
        call->causal = is_causal;
        if (dropout_p != 0.0 || !call->is(Declined::kDtype, dtype_fits(query.scalar_type()))) return false;
        if (!describe_operand(call, query, query) || !describe_operand(call, grad_out, query) || !describe_operand(call, out, query))
          return false;
        if (!call->is(Declined::kDtype, key.scalar_type() == query.scalar_type())) return false;
        if (!describe_operand(call, key, key) || !describe_operand(call, value, key)) return false;
        if (!describe_sizes(call) || !call->describe_mask(attn_mask)) return false;
        return call->describe_scale(scale);
      },
      [&]() -> Outputs {
        auto [grad_q, grad_k, grad_v] = at::cpu::_scaled_dot_product_flash_attention_for_cpu_backward(
            grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, attn_mask, scale);
        Outputs stock(std::move(grad_q));
        stock.more = {std::move(grad_k), std::move(grad_v)};
        return stock;
      });
  if (outputs.more.empty()) return {std::move(outputs.first), at::Tensor(), at::Tensor()};
  return {std::move(outputs.first), std::move(outputs.more[0]), std::move(outputs.more[1])};
}

}  // namespace ipexrun::preload::adapters
