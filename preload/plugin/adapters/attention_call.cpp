// Sites and the candidates of attention: our own blocks with a running softmax, of float32 also with products in bf16. What a row is wrong
// by depends on no other row and, in bf16, not on how large the scores are (kernels/attention.h: large ones get more digits, larger ones
// are computed in float32), so one check holds for the site.
#include "preload/plugin/adapters/attention_call.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_strided_cpu_dispatch.h>

#include <c10/core/GradMode.h>

#include <algorithm>

#include "configs/contract/decision.h"
#include "kernels/attention.h"
#include "preload/plugin/answer.h"
#include "preload/plugin/candidate_kernels.h"
#include "preload/plugin/parallel.h"
#include "preload/plugin/scratch.h"

namespace ipexrun::preload {
namespace {

/// The dimensions of q from the widest stride to the narrowest, one in each byte: stock's result has q's layout, and whether it has is
/// checked once a site.
std::uint64_t order_of(const at::Tensor& q) {
  std::array<std::int64_t, 3> dims{0, 1, 2};
  std::stable_sort(dims.begin(), dims.end(), [&](std::int64_t a, std::int64_t b) { return q.stride(a) > q.stride(b); });
  return static_cast<std::uint64_t>(dims[0] << 16 | dims[1] << 8 | dims[2]);
}

/// [batch, heads, rows, depth], the depth dense.
bool describe_operand(AttentionCall* call, const at::Tensor& tensor) {
  return call->is(Declined::kForm, tensor.dim() == 4) && call->is(Declined::kDtype, tensor.scalar_type() == call->q->scalar_type()) &&
         call->is(Declined::kKind, plain(tensor)) && call->is(Declined::kLayout, tensor.size(3) == 1 || tensor.stride(3) == 1);
}

/// What stock does with other sizes is its own business.
bool sizes_fit(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  return q.numel() > 0 && k.numel() > 0 && k.sizes() == v.sizes() && k.size(0) == q.size(0) && k.size(3) == q.size(3) &&
         q.size(1) % k.size(1) == 0;
}

}  // namespace

bool AttentionCall::describe(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, double dropout_p, bool is_causal,
                             const std::optional<at::Tensor>& attn_mask, std::optional<double> scale_given) {
  q = &query;
  k = &key;
  v = &value;
  causal = is_causal;
  if (dropout_p != 0.0 || !is(Declined::kDtype, product_dtype_fits(query.scalar_type()))) return false;
  if (!describe_operand(this, query) || !describe_operand(this, key) || !describe_operand(this, value)) return false;
  wants_grad = query.scalar_type() == at::kFloat && c10::GradMode::is_enabled() &&
               (query.requires_grad() || key.requires_grad() || value.requires_grad());
  return is(Declined::kForm, sizes_fit(query, key, value)) && describe_mask(attn_mask) && describe_scale(scale_given);
}

int AttentionCall::best(bool bf16, IsaSet isa) const {
  if (q->scalar_type() == at::kHalf) return kStock;
  if (bf16 && !wants_grad && q->scalar_type() == at::kFloat && kernels::attention_bf16_inside(kernel_operands(), isa)) return kOwnBf16;
  return kernels::attention_supported(kernel_dtype(*q), isa) ? kOwnF32 : kStock;
}

SiteId AttentionCall::site_id() const {
  SiteId id = scores_id();
  if (k->size(1) != q->size(1)) id.form |= 1u << 18;
  if (wants_grad) id.form |= 1u << 19;
  id.detail = order_of(*q);
  return id;
}

SiteKey AttentionCall::site_key(const SiteId& id, const TierOptions& options) const {
  std::string layouts = id.detail == 0x000102 ? "c" : "s";
  layouts += k->size(1) != q->size(1) ? "ee" : "ss";  // heads of k and v that several of q share
  SiteKey key = scores_key(id, options, std::move(layouts));
  if (wants_grad) key.sizes += ",grad";
  return key;
}

bool AttentionCall::may_round(const TierOptions& options) const {
  return !wants_grad && bf16_inside_allowed(options) && kernels::attention_bf16_inside(kernel_operands(), options.isa);
}

std::vector<int> AttentionCall::candidates(const TierOptions& options) const {
  std::vector<int> fitting;
  if (q->scalar_type() == at::kHalf) {
    if (!half_is_native(at::kHalf, options.isa) && kernels::attention_supported(kernels::DType::kF32, options.isa))
      fitting.push_back(kOwnF32);
    return fitting;
  }
  const bool rounded = may_round(options);
  if (rounded) fitting.push_back(kOwnBf16);
  if (rounded && options.dtype == DtypePolicy::kBfloat16) return fitting;  // as of products, float32 is no answer there
  if (kernels::attention_supported(kernel_dtype(*q), options.isa)) fitting.push_back(kOwnF32);
  return fitting;
}

bool AttentionCall::changes_dtype() const { return q->scalar_type() != at::kHalf && may_round(tier()->options); }

/// float16, whose products are loops over elements.
Outputs AttentionCall::run_widened(IsaSet isa) const {
  const at::Tensor wide_q = q->to(at::kFloat);
  const at::Tensor wide_k = k->to(at::kFloat);
  const at::Tensor wide_v = v->to(at::kFloat);
  std::optional<at::Tensor> wide_mask;
  if (mask != nullptr) wide_mask = mask->to(at::kFloat);
  AttentionCall wide;
  wide.q = &wide_q;
  wide.k = &wide_k;
  wide.v = &wide_v;
  wide.scale = scale;
  wide.causal = causal;
  wide.wants_logsumexp = wants_logsumexp;
  if (!wide.describe_mask(wide_mask)) return {};
  Outputs outputs = wide.run(kOwnF32, {}, isa);
  if (outputs.first.defined()) outputs.first = outputs.first.to(at::kHalf);
  return outputs;
}

Outputs AttentionCall::run(int candidate, const Packs& /*packs*/, IsaSet isa) const {
  if (q->scalar_type() == at::kHalf) return run_widened(isa);
  const std::int64_t batch = q->size(0);
  const std::int64_t heads = q->size(1);
  const std::int64_t rows = q->size(2);
  const std::int64_t depth = q->size(3);
  at::Tensor to = out.defined() ? out : scratch_empty_like(*q, q->scalar_type());  // as stock does
  if (depth > 1 && to.stride(3) != 1) return {};
  kernels::AttentionArgs args = kernel_operands();
  args.bf16_inside = candidate == kOwnBf16;
  args.out = to.mutable_data_ptr();
  args.out_batch_stride = to.stride(0);
  args.out_head_stride = to.stride(1);
  args.out_row_stride = to.stride(2);
  at::Tensor logsumexp;
  if (wants_logsumexp) {
    logsumexp = at::cpu::empty_strided({batch, heads, rows}, {rows * heads, 1, heads}, q->options().dtype(at::kFloat));
    args.logsumexp = static_cast<float*>(logsumexp.mutable_data_ptr());
    args.lse_batch_stride = logsumexp.stride(0);
    args.lse_head_stride = logsumexp.stride(1);
    args.lse_row_stride = logsumexp.stride(2);
  }
  bool done = kernels::attention(args, torch_pool(), isa);
  if (!done && args.bf16_inside) {  // refused: these scores want float32
    args.bf16_inside = false;
    done = kernels::attention(args, torch_pool(), isa);
  }
  if (!done) return {};
  Outputs outputs(std::move(to));
  if (wants_logsumexp) outputs.more = {std::move(logsumexp)};
  return outputs;
}

}  // namespace ipexrun::preload
