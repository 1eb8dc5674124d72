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

SiteId AttentionGradCall::site_id() const { return scores_id(); }

SiteKey AttentionGradCall::site_key(const SiteId& id, const TierOptions& options) const { return scores_key(id, options, "sss"); }

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
  forward = kernel_operands();
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
