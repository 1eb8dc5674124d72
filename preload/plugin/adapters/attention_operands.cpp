#include "preload/plugin/adapters/attention_operands.h"

#include <ATen/Parallel.h>

#include <cmath>

#include "configs/contract/decision.h"
#include "preload/plugin/answer.h"
#include "preload/plugin/candidate_kernels.h"

namespace ipexrun::preload {
namespace {

/// Multiply-adds of one product below which a call is too small.
constexpr std::int64_t kWorthwhileAttention = 16384;

}  // namespace

bool AttentionOperands::describe_mask(const std::optional<at::Tensor>& given) {
  if (!given.has_value() || !given->defined()) return true;
  const std::int64_t sizes[4] = {q->size(0), q->size(1), q->size(2), k->size(2)};
  const std::int64_t dims = given->dim();
  if (!is(Declined::kForm, dims == 2 || dims == 4) || !is(Declined::kKind, plain(*given))) return false;
  if (!is(Declined::kDtype, given->scalar_type() == at::kFloat || given->scalar_type() == q->scalar_type())) return false;
  for (std::int64_t i = 0; i < dims; ++i) {
    const std::int64_t size = given->size(i);
    if (!is(Declined::kForm, size == 1 || size == sizes[4 - dims + i])) return false;
    mask_strides[static_cast<std::size_t>(4 - dims + i)] = size == 1 ? 0 : given->stride(i);
  }
  mask = &*given;
  return is(Declined::kLayout, mask_strides[3] == 0 || mask_strides[3] == 1);
}

bool AttentionOperands::describe_scale(std::optional<double> given) {
  scale = static_cast<float>(given.has_value() ? *given : 1.0 / std::sqrt(static_cast<double>(q->size(3))));
  return is(Declined::kForm, scale != 0);
}

bool AttentionOperands::worthwhile() {
  return is(Declined::kSmall, q->numel() >= kWorthwhileAttention / k->size(2) || tier()->forced.load(std::memory_order_relaxed) != kStock);
}

SiteId AttentionOperands::scores_id() const {
  SiteId id;
  id.op = static_cast<std::uint32_t>(op);
  id.form = static_cast<std::uint32_t>(q->scalar_type()) |
            (mask == nullptr ? 0 : (1u + static_cast<std::uint32_t>(mask->scalar_type())) << 8) | (masked_by_key() ? 1u << 16 : 0) |
            (causal ? 1u << 17 : 0);
  id.threads = at::get_num_threads();
  id.batch = round_up_rows(q->size(0) * q->size(1));
  id.m = round_up_rows(q->size(2));
  id.n = round_up_rows(k->size(2));  // a cache of keys grows by one a call
  id.k = q->size(3);
  return id;
}

SiteKey AttentionOperands::scores_key(const SiteId& id, const TierOptions& options, std::string layouts) const {
  SiteKey key;
  key.op = op_name(op);
  key.dtypes = dtype_word(q->scalar_type());
  if (mask != nullptr) key.dtypes += std::string(",") + dtype_word(mask->scalar_type());
  key.layouts = std::move(layouts);
  if (mask != nullptr) key.layouts += masked_by_key() ? 's' : 'e';
  key.sizes = "heads=" + std::to_string(id.batch) + ",rows=" + std::to_string(id.m) + ",keys=" + std::to_string(id.n) +
              ",depth=" + std::to_string(id.k) + (causal ? ",causal" : "");
  key.threads = id.threads;
  key.isa = level_name(options.isa);
  key.torch = options.torch_minor;
  return key;
}

kernels::AttentionArgs AttentionOperands::kernel_operands() const {
  kernels::AttentionArgs args;
  args.q = heads_of(*q);
  args.k = heads_of(*k);
  args.v = heads_of(*v);
  args.dtype = kernel_dtype(*q);
  args.batch = q->size(0);
  args.heads = q->size(1);
  args.kv_heads = k->size(1);
  args.rows = q->size(2);
  args.keys = k->size(2);
  args.depth = q->size(3);
  args.scale = scale;
  args.causal = causal;
  if (mask != nullptr) {
    args.mask = {mask->const_data_ptr(), kernel_dtype(*mask), mask_strides[0], mask_strides[1], mask_strides[2], mask_strides[3]};
  }
  return args;
}

kernels::Heads heads_of(const at::Tensor& tensor) {
  return {tensor.const_data_ptr(), tensor.stride(0), tensor.stride(1), tensor.stride(2)};
}

}  // namespace ipexrun::preload
