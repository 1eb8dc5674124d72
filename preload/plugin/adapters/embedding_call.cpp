// Sites and the candidate of embedding bags: our own vector code, in stock's order of additions. It fails, and stock answers or raises,
// where an index or an offset is out of range.
#include "preload/plugin/adapters/embedding_call.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_cpu_dispatch.h>

#include <cstring>

#include "configs/contract/decision.h"
#include "preload/plugin/adapters/sampling.h"
#include "preload/plugin/candidate_kernels.h"
#include "preload/plugin/parallel.h"

namespace ipexrun::preload {
namespace {

const char* mode_word(kernels::BagMode mode) {
  return mode == kernels::BagMode::kSum ? "sum" : mode == kernels::BagMode::kMean ? "mean" : "max";
}

bool same_integers(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() && (a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0);
}

}  // namespace

SiteId EmbeddingBagCall::site_id() const {
  SiteId id;
  id.op = static_cast<std::uint32_t>(op);
  id.form = static_cast<std::uint32_t>(table->scalar_type()) | static_cast<std::uint32_t>(args.mode) << 8 | (args.wide ? 1u << 10 : 0) |
            (weights != nullptr ? 1u << 11 : 0) | (args.padding >= 0 ? 1u << 12 : 0);
  id.threads = at::get_num_threads();
  id.batch = round_up_rows(args.rows);
  id.m = round_up_rows(args.bags);
  id.n = args.columns;
  id.k = round_up_rows(args.count);
  return id;
}

SiteKey EmbeddingBagCall::site_key(const SiteId& id, const TierOptions& options) const {
  SiteKey key;
  key.op = op_name(op);
  key.dtypes = table->scalar_type() == at::kFloat ? "f32" : "bf16";
  key.layouts = "c";
  key.sizes = std::string(mode_word(args.mode)) + "=1,bags=" + std::to_string(id.m) + ",indices=" + std::to_string(id.k) +
              ",rows=" + std::to_string(id.batch) + ",columns=" + std::to_string(args.columns) + (args.wide ? "" : ",int32=1") +
              (weights != nullptr ? ",weights=1" : "") + (args.padding >= 0 ? ",padding=1" : "");
  key.threads = id.threads;
  key.isa = level_name(options.isa);
  key.torch = options.torch_minor;
  return key;
}

std::vector<int> EmbeddingBagCall::candidates(const TierOptions& options) const {
  if (!kernels::embedding_bag_supported(options.isa)) return {};
  return {kOwnF32};
}

kernels::EmbeddingBagArgs EmbeddingBagCall::with_inputs() const {
  kernels::EmbeddingBagArgs call = args;
  call.table = table->const_data_ptr();
  call.indices = indices->const_data_ptr();
  call.offsets = offsets->const_data_ptr();
  if (weights != nullptr) call.weights = weights->const_data_ptr();
  return call;
}

/// The bag of each index is empty where stock's fast way needs none; sizes are zeros for sums; the places of the largest are a copy of the
/// sizes elsewhere.
Outputs EmbeddingBagCall::run(int /*candidate*/, const Packs& /*packs*/, IsaSet isa) const {
  const bool sum = args.mode == kernels::BagMode::kSum;
  const bool largest = args.mode == kernels::BagMode::kMax;
  const at::TensorOptions integers = indices->options();
  Outputs outputs(at::cpu::empty({args.bags, args.columns}, table->options()));
  outputs.more.reserve(3);
  outputs.more.push_back(at::cpu::empty({sum && args.padding < 0 ? 0 : args.count}, integers));
  outputs.more.push_back(at::cpu::empty({reported}, integers));
  outputs.more.push_back(largest ? at::cpu::empty({args.bags, args.columns}, integers) : at::cpu::empty({reported}, integers));
  const at::Tensor& bag_of = outputs.more[0];
  const at::Tensor& sizes = outputs.more[1];
  const at::Tensor& places = outputs.more[2];

  kernels::EmbeddingBagArgs call = with_inputs();
  call.to = outputs.first.mutable_data_ptr();
  if (bag_of.numel() > 0) call.bag_of = bag_of.mutable_data_ptr();
  if (!sum) call.sizes = sizes.mutable_data_ptr();
  if (largest) call.places = places.mutable_data_ptr();
  if (!kernels::embedding_bag(call, torch_pool(), isa)) return {};
  if (sum) std::memset(sizes.mutable_data_ptr(), 0, sizes.nbytes());
  if (!largest) std::memcpy(places.mutable_data_ptr(), sizes.const_data_ptr(), sizes.nbytes());
  return outputs;
}

/// Of the sum or mean, with offsets that are known to be in range.
template <typename T, typename Index>
double EmbeddingBagCall::truth(std::int64_t bag, std::int64_t column) const {
  const kernels::EmbeddingBagArgs call = with_inputs();
  const auto* begins = static_cast<const Index*>(call.offsets);
  const auto* rows = static_cast<const Index*>(call.indices);
  const std::int64_t end = bag + 1 < args.bags ? static_cast<std::int64_t>(begins[bag + 1]) : args.count;
  double sum = 0;
  std::int64_t size = 0;
  for (std::int64_t i = begins[bag]; i < end; ++i) {
    if (rows[i] == args.padding) continue;
    const auto value = static_cast<double>(static_cast<const T*>(call.table)[rows[i] * args.row_stride + column]);
    sum += value * (weights != nullptr ? static_cast<double>(static_cast<const T*>(call.weights)[i]) : 1.0);
    ++size;
  }
  return args.mode == kernels::BagMode::kMean && size > 0 ? sum / static_cast<double>(size) : sum;
}

template <typename T, typename Index>
bool EmbeddingBagCall::accurate_as(const Outputs& stock, const Outputs& result, Precision precision) const {
  for (std::size_t i = 0; i < stock.more.size(); ++i) {
    if (!same_integers(stock.more[i], result.more[i])) return false;
  }
  const std::int64_t count = stock.first.numel();
  const T* s = stock.first.const_data_ptr<T>();
  const T* c = result.first.const_data_ptr<T>();
  if (same(s, c, count)) return true;
  if (args.mode == kernels::BagMode::kMax) return false;
  const std::int64_t sampled =
      std::clamp<std::int64_t>(kSampledProducts / (args.count / args.bags + 1), 1, std::min(count, kSampledElements));
  Samples samples;
  spread(count, sampled, [&](std::int64_t i) { samples.add(truth<T, Index>(i / args.columns, i % args.columns), s[i], c[i]); });
  return samples.pass(1, s, c, count, precision);
}

bool EmbeddingBagCall::accurate(const Outputs& stock, const Outputs& result, int /*candidate*/) const {
  if (table->scalar_type() == at::kBFloat16) {
    return args.wide ? accurate_as<at::BFloat16, std::int64_t>(stock, result, Precision::kBf16Op)
                     : accurate_as<at::BFloat16, std::int32_t>(stock, result, Precision::kBf16Op);
  }
  return args.wide ? accurate_as<float, std::int64_t>(stock, result, Precision::kFloat32)
                   : accurate_as<float, std::int32_t>(stock, result, Precision::kFloat32);
}

}  // namespace ipexrun::preload
