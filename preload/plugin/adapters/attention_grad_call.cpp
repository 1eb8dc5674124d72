// Sites and the candidate of the gradients of attention.
#include "preload/plugin/adapters/attention_grad_call.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_strided_cpu_dispatch.h>

#include "configs/contract/decision.h"
#include "kernels/attention_grad.h"
#include "preload/plugin/candidate_kernels.h"
#include "preload/plugin/parallel.h"

namespace ipexrun::preload {
namespace {

kernels::Heads heads_of(const at::Tensor& tensor) {
  return {tensor.const_data_ptr(), tensor.stride(0), tensor.stride(1), tensor.stride(2)};
}

/// As stock makes it: [batch, rows, heads, depth] in memory.
at::Tensor gradient_of(const at::Tensor& tensor) {
  const std::int64_t heads = tensor.size(1);
  const std::int64_t rows = tensor.size(2);
  const std::int64_t depth = tensor.size(3);
  return at::cpu::empty_strided(tensor.sizes(), {rows * heads * depth, depth, heads * depth, 1}, tensor.options());
}

kernels::HeadsOut out_of(const at::Tensor& tensor) {
  return {tensor.mutable_data_ptr(), tensor.stride(0), tensor.stride(1), tensor.stride(2)};
}

}  // namespace

SiteId AttentionGradCall::site_id() const {
  SiteId id;
  id.op = static_cast<std::uint32_t>(op);
  id.form = static_cast<std::uint32_t>(q->scalar_type()) |
            (mask == nullptr ? 0 : (1u + static_cast<std::uint32_t>(mask->scalar_type())) << 8) |
            (mask != nullptr && mask_strides[3] != 0 ? 1u << 16 : 0) | (causal ? 1u << 17 : 0);
  id.threads = at::get_num_threads();
  id.batch = round_up_rows(q->size(0) * q->size(1));
  id.m = round_up_rows(q->size(2));
  id.n = round_up_rows(k->size(2));
  id.k = q->size(3);
  return id;
}

SiteKey AttentionGradCall::site_key(const SiteId& id, const TierOptions& options) const {
  const auto word = [](at::ScalarType dtype) { return dtype == at::kFloat ? "f32" : "bf16"; };
  SiteKey key;
  key.op = op_name(op);
  key.dtypes = word(q->scalar_type());
  if (mask != nullptr) key.dtypes += std::string(",") + word(mask->scalar_type());
  key.layouts = "sss";
  if (mask != nullptr) key.layouts += mask_strides[3] != 0 ? 's' : 'e';
  key.sizes = "heads=" + std::to_string(id.batch) + ",rows=" + std::to_string(id.m) + ",keys=" + std::to_string(id.n) +
              ",depth=" + std::to_string(id.k) + (causal ? ",causal" : "");
  key.threads = id.threads;
  key.isa = level_name(options.isa);
  key.torch = options.torch_minor;
  return key;
}

std::vector<int> AttentionGradCall::candidates(const TierOptions& options) const {
  if (!kernels::attention_grad_supported(kernel_dtype(*q), options.isa)) return {};
  return {kOwnF32};
}

Outputs AttentionGradCall::run(int /*candidate*/, const Packs& /*packs*/, IsaSet isa) const {
  at::Tensor grad_q = gradient_of(*q);
  at::Tensor grad_k = gradient_of(*k);
  at::Tensor grad_v = gradient_of(*v);
  kernels::AttentionGradArgs args;
  kernels::AttentionArgs& forward = args.forward;
  forward.q = heads_of(*q);
  forward.k = heads_of(*k);
  forward.v = heads_of(*v);
  forward.dtype = kernel_dtype(*q);
  forward.batch = q->size(0);
  forward.heads = q->size(1);
  forward.kv_heads = k->size(1);
  forward.rows = q->size(2);
  forward.keys = k->size(2);
  forward.depth = q->size(3);
  forward.scale = scale;
  forward.causal = causal;
  if (mask != nullptr) {
    forward.mask = {mask->const_data_ptr(), kernel_dtype(*mask), mask_strides[0], mask_strides[1], mask_strides[2], mask_strides[3]};
  }
  forward.out = const_cast<void*>(result->const_data_ptr());  // read here, as logsumexp
  forward.out_batch_stride = result->stride(0);
  forward.out_head_stride = result->stride(1);
  forward.out_row_stride = result->stride(2);
  forward.logsumexp = const_cast<float*>(logsumexp->const_data_ptr<float>());
  forward.lse_batch_stride = logsumexp->stride(0);
  forward.lse_head_stride = logsumexp->stride(1);
  forward.lse_row_stride = logsumexp->stride(2);
  args.grad_out = heads_of(*grad);
  args.grad_q = out_of(grad_q);
  args.grad_k = out_of(grad_k);
  args.grad_v = out_of(grad_v);
  if (!kernels::attention_grad(args, torch_pool(), isa)) return {};
  Outputs outputs(std::move(grad_q));
  outputs.more = {std::move(grad_k), std::move(grad_v)};
  return outputs;
}

}  // namespace ipexrun::preload
