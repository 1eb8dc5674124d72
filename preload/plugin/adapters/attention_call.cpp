// Sites and the candidate of attention: our own blocks with a running softmax. What a row is wrong by depends on no other row, so one
// check holds for the site.
#include "preload/plugin/adapters/attention_call.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_like_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/empty_strided_cpu_dispatch.h>

#include <algorithm>

#include "configs/contract/decision.h"
#include "kernels/attention.h"
#include "preload/plugin/candidate_kernels.h"
#include "preload/plugin/parallel.h"

namespace ipexrun::preload {
namespace {

kernels::Heads heads_of(const at::Tensor& tensor) {
  return {tensor.const_data_ptr(), tensor.stride(0), tensor.stride(1), tensor.stride(2)};
}

/// The dimensions of q from the widest stride to the narrowest, one in each byte: stock's result has q's layout, and whether it has is
/// checked once a site.
std::uint64_t order_of(const at::Tensor& q) {
  std::array<std::int64_t, 3> dims{0, 1, 2};
  std::stable_sort(dims.begin(), dims.end(), [&](std::int64_t a, std::int64_t b) { return q.stride(a) > q.stride(b); });
  return static_cast<std::uint64_t>(dims[0] << 16 | dims[1] << 8 | dims[2]);
}

}  // namespace

SiteId AttentionCall::site_id() const {
  SiteId id;
  id.op = static_cast<std::uint32_t>(op);
  id.form = static_cast<std::uint32_t>(q->scalar_type()) |
            (mask == nullptr ? 0 : (1u + static_cast<std::uint32_t>(mask->scalar_type())) << 8) | (masked_by_key() ? 1u << 16 : 0) |
            (causal ? 1u << 17 : 0) | (k->size(1) != q->size(1) ? 1u << 18 : 0);
  id.threads = at::get_num_threads();
  id.batch = round_up_rows(q->size(0) * q->size(1));
  id.m = round_up_rows(q->size(2));
  id.n = round_up_rows(k->size(2));  // a cache of keys grows by one a call
  id.k = q->size(3);
  id.detail = order_of(*q);
  return id;
}

SiteKey AttentionCall::site_key(const SiteId& id, const TierOptions& options) const {
  const auto word = [](at::ScalarType dtype) { return dtype == at::kFloat ? "f32" : "bf16"; };
  SiteKey key;
  key.op = op_name(op);
  key.dtypes = word(q->scalar_type());
  if (mask != nullptr) key.dtypes += std::string(",") + word(mask->scalar_type());
  key.layouts = id.detail == 0x000102 ? "c" : "s";
  key.layouts += k->size(1) != q->size(1) ? "ee" : "ss";  // heads of k and v that several of q share
  if (mask != nullptr) key.layouts += masked_by_key() ? 's' : 'e';
  key.sizes = "heads=" + std::to_string(id.batch) + ",rows=" + std::to_string(id.m) + ",keys=" + std::to_string(id.n) +
              ",depth=" + std::to_string(id.k) + (causal ? ",causal" : "");
  key.threads = id.threads;
  key.isa = level_name(options.isa);
  key.torch = options.torch_minor;
  return key;
}

std::vector<int> AttentionCall::candidates(const TierOptions& options) const {
  if (!kernels::attention_supported(kernel_dtype(*q), options.isa)) return {};
  return {kOwnF32};
}

Outputs AttentionCall::run(int /*candidate*/, const Packs& /*packs*/, IsaSet isa) const {
  const std::int64_t batch = q->size(0);
  const std::int64_t heads = q->size(1);
  const std::int64_t rows = q->size(2);
  const std::int64_t depth = q->size(3);
  at::Tensor result = at::compositeexplicitautograd::empty_like(*q, q->options(), at::MemoryFormat::Preserve);  // as stock does
  if (depth > 1 && result.stride(3) != 1) return {};
  at::Tensor logsumexp = at::cpu::empty_strided({batch, heads, rows}, {rows * heads, 1, heads}, q->options().dtype(at::kFloat));
  kernels::AttentionArgs args;
  args.q = heads_of(*q);
  args.k = heads_of(*k);
  args.v = heads_of(*v);
  args.dtype = kernel_dtype(*q);
  args.batch = batch;
  args.heads = heads;
  args.kv_heads = k->size(1);
  args.rows = rows;
  args.keys = k->size(2);
  args.depth = depth;
  args.scale = scale;
  args.causal = causal;
  if (mask != nullptr) {
    args.mask = {mask->const_data_ptr(), kernel_dtype(*mask), mask_strides[0], mask_strides[1], mask_strides[2], mask_strides[3]};
  }
  args.out = result.mutable_data_ptr();
  args.out_batch_stride = result.stride(0);
  args.out_head_stride = result.stride(1);
  args.out_row_stride = result.stride(2);
  args.logsumexp = static_cast<float*>(logsumexp.mutable_data_ptr());
  args.lse_batch_stride = logsumexp.stride(0);
  args.lse_head_stride = logsumexp.stride(1);
  args.lse_row_stride = logsumexp.stride(2);
  if (!kernels::attention(args, torch_pool(), isa)) return {};
  Outputs outputs(std::move(result));
  outputs.more = {std::move(logsumexp)};
  return outputs;
}

}  // namespace ipexrun::preload
