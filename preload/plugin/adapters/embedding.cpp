// _embedding_bag_forward_only and _embedding_bag (`F.embedding_bag` without gradients and with). `embedding` itself stays stock's: it is
// composite, its leaf index_select copies rows at the speed of a copy.
// Before the generated headers, which name it and do not include it.
#include <ATen/core/Tensor.h>

#include <ATen/ops/_embedding_bag_cpu_dispatch.h>
#include <ATen/ops/_embedding_bag_forward_only_cpu_dispatch.h>

#include "preload/plugin/adapters.h"
#include "preload/plugin/adapters/embedding_call.h"
#include "preload/plugin/answer.h"
#include "preload/plugin/candidate_kernels.h"

namespace ipexrun::preload::adapters {
namespace {

using Four = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

/// Stock adds rows up as fast as memory gives them. A plain sum gains in short calls, of which the rest is half, and from wide rows.
constexpr std::int64_t kShortCall = 32768;  ///< elements
constexpr std::int64_t kWideRow = 512;
constexpr std::int64_t kMaxRows = std::int64_t{1} << 31;  ///< places are counted in 32 bits

/// What a call is of, in both ops.
struct Bags {
  const at::Tensor& weight;
  const at::Tensor& indices;
  const at::Tensor& offsets;
  std::int64_t mode;
  const std::optional<at::Tensor>& weights;
  bool has_end;
  std::int64_t padding;
};

bool describe(EmbeddingBagCall* call, const Bags& bags, bool one_size_a_bag) {
  const at::Tensor* weights = bags.weights && bags.weights->defined() ? &*bags.weights : nullptr;
  call->table = &bags.weight;
  call->indices = &bags.indices;
  call->offsets = &bags.offsets;
  call->weights = weights;
  const at::ScalarType integer = bags.indices.scalar_type();
  if (!call->is(Declined::kDtype, dtype_fits(bags.weight.scalar_type()) && (integer == at::kLong || integer == at::kInt) &&
                                      bags.offsets.scalar_type() == integer &&
                                      (weights == nullptr || weights->scalar_type() == bags.weight.scalar_type())))
    return false;
  if (!call->is(Declined::kKind,
                plain(bags.weight) && plain(bags.indices) && plain(bags.offsets) && (weights == nullptr || plain(*weights))))
    return false;
  if (!call->is(Declined::kForm,
                bags.weight.dim() == 2 && bags.indices.dim() == 1 && bags.offsets.dim() == 1 && bags.mode >= 0 && bags.mode <= 2))
    return false;
  kernels::EmbeddingBagArgs& args = call->args;
  args.rows = bags.weight.size(0);
  args.columns = bags.weight.size(1);
  args.row_stride = bags.weight.stride(0);
  args.dtype = kernel_dtype(bags.weight);
  args.mode = static_cast<kernels::BagMode>(bags.mode);
  args.wide = integer == at::kLong;
  args.count = bags.indices.size(0);
  args.has_end = bags.has_end;
  args.bags = bags.offsets.size(0) - (bags.has_end ? 1 : 0);
  args.padding = bags.padding < 0 ? -1 : bags.padding;
  call->reported = args.mode == kernels::BagMode::kSum && !one_size_a_bag ? bags.offsets.size(0) : args.bags;
  // Rows with weights and a padding are multiplied and added one after the other in stock, which gives other bits: its own.
  if (!call->is(Declined::kForm,
                args.rows > 0 && args.rows < kMaxRows && args.columns > 0 && args.count > 0 && args.bags > 0 && args.padding < args.rows &&
                    (weights == nullptr ||
                     (args.mode == kernels::BagMode::kSum && args.padding < 0 && weights->dim() == 1 && weights->size(0) == args.count))))
    return false;
  const bool plain_sum = args.mode == kernels::BagMode::kSum && args.padding < 0;
  if (!call->is(Declined::kForm, !plain_sum || args.columns >= kWideRow || args.count < kShortCall / args.columns ||
                                     tier()->forced.load(std::memory_order_relaxed) != kStock))
    return false;
  return call->is(Declined::kLayout, bags.weight.stride(1) == 1 && args.row_stride >= args.columns && bags.indices.is_contiguous() &&
                                         bags.offsets.is_contiguous() && (weights == nullptr || weights->is_contiguous()));
}

Outputs outputs_of(Four stock) {
  Outputs outputs(std::move(std::get<0>(stock)));
  outputs.more = {std::move(std::get<1>(stock)), std::move(std::get<2>(stock)), std::move(std::get<3>(stock))};
  return outputs;
}

Four results_of(Outputs outputs) {
  return {std::move(outputs.first), std::move(outputs.more[0]), std::move(outputs.more[1]), std::move(outputs.more[2])};
}

}  // namespace

Four embedding_bag_forward_only(const at::Tensor& weight, const at::Tensor& indices, const at::Tensor& offsets, bool scale_grad_by_freq,
                                std::int64_t mode, bool sparse, const std::optional<at::Tensor>& per_sample_weights,
                                bool include_last_offset, std::int64_t padding_idx) {
  const Bags bags{weight, indices, offsets, mode, per_sample_weights, include_last_offset, padding_idx};
  return results_of(answer<EmbeddingBagCall>(
      Op::kEmbeddingBagForwardOnly, [&](EmbeddingBagCall* call) { return describe(call, bags, false); },
      [&] {
        return outputs_of(at::cpu::_embedding_bag_forward_only(weight, indices, offsets, scale_grad_by_freq, mode, sparse,
                                                               per_sample_weights, include_last_offset, padding_idx));
      }));
}

Four embedding_bag(const at::Tensor& weight, const at::Tensor& indices, const at::Tensor& offsets, bool scale_grad_by_freq,
                   std::int64_t mode, bool sparse, const std::optional<at::Tensor>& per_sample_weights, bool include_last_offset,
                   std::int64_t padding_idx) {
  const Bags bags{weight, indices, offsets, mode, per_sample_weights, include_last_offset, padding_idx};
  return results_of(answer<EmbeddingBagCall>(
      Op::kEmbeddingBag, [&](EmbeddingBagCall* call) { return describe(call, bags, true); },
      [&] {
        return outputs_of(at::cpu::_embedding_bag(weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights,
                                                  include_last_offset, padding_idx));
      }));
}

}  // namespace ipexrun::preload::adapters
