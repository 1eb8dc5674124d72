// Sites and the candidate of products with int8 weights: our own kernel, with fp32 sums as stock's.
#include "preload/plugin/adapters/linear_int8_call.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_cpu_dispatch.h>

#include <algorithm>

#include "configs/contract/decision.h"
#include "kernels/linear_int8.h"
#include "preload/plugin/adapters/sampling.h"
#include "preload/plugin/candidate_kernels.h"
#include "preload/plugin/parallel.h"

namespace ipexrun::preload {

SiteId LinearInt8Call::site_id() const {
  SiteId id;
  id.op = static_cast<std::uint32_t>(op);
  id.form = static_cast<std::uint32_t>(a->scalar_type());
  id.threads = at::get_num_threads();
  id.m = round_up_rows(a->size(0));
  id.n = b->size(0);
  id.k = b->size(1);
  return id;
}

SiteKey LinearInt8Call::site_key(const SiteId& id, const TierOptions& options) const {
  SiteKey key;
  key.op = op_name(op);
  key.dtypes = a->scalar_type() == at::kFloat ? "f32,i8,f32" : "bf16,i8,bf16";
  key.layouts = "ccc";
  key.sizes = "m=" + std::to_string(id.m) + ",n=" + std::to_string(id.n) + ",k=" + std::to_string(id.k);
  key.threads = id.threads;
  key.isa = level_name(options.isa);
  key.torch = options.torch_minor;
  return key;
}

std::vector<int> LinearInt8Call::candidates(const TierOptions& options) const {
  kernels::LinearInt8Args args;
  args.m = args.n = args.k = 1;
  if (!kernels::linear_int8_supported(args, options.isa)) return {};
  return {kOwnF32};
}

Outputs LinearInt8Call::run(int /*candidate*/, const Packs& /*packs*/, IsaSet isa) const {
  const std::int64_t rows = a->size(0);
  const std::int64_t columns = b->size(0);
  at::Tensor result = at::cpu::empty({rows, columns}, a->options());
  kernels::LinearInt8Args args;
  args.a = a->const_data_ptr();
  args.b = b->const_data_ptr<std::int8_t>();
  args.scales = scales->const_data_ptr();
  args.c = result.mutable_data_ptr();
  args.a_dtype = args.scales_dtype = args.c_dtype = kernel_dtype(*a);
  args.m = rows;
  args.n = args.ldc = columns;
  args.k = args.lda = args.ldb = b->size(1);
  if (!kernels::linear_int8(args, torch_pool(), isa)) return {};
  return result;
}

template <typename T>
bool LinearInt8Call::accurate_as(const at::Tensor& stock, const at::Tensor& result, Precision precision) const {
  const std::int64_t columns = b->size(0);
  const std::int64_t length = b->size(1);
  const T* rows = a->const_data_ptr<T>();
  const T* scale = scales->const_data_ptr<T>();
  const std::int8_t* weights = b->const_data_ptr<std::int8_t>();
  const T* s = stock.const_data_ptr<T>();
  const T* c = result.const_data_ptr<T>();
  const auto truth = [&](std::int64_t at) {
    const T* row = rows + at / columns * length;
    const std::int8_t* weight = weights + at % columns * length;
    double sum = 0;
    for (std::int64_t i = 0; i < length; ++i) sum += static_cast<double>(row[i]) * static_cast<double>(weight[i]);
    return sum * static_cast<double>(scale[at % columns]);
  };
  Samples samples;
  spread(stock.numel(), std::clamp<std::int64_t>(kSampledProducts / length, 1, stock.numel()),
         [&](std::int64_t at) { samples.add(truth(at), s[at], c[at]); });
  return samples.pass(1, s, c, stock.numel(), precision);
}

bool LinearInt8Call::accurate(const Outputs& stock, const Outputs& result, int /*candidate*/) const {
  return a->scalar_type() == at::kFloat ? accurate_as<float>(stock.first, result.first, Precision::kFloat32)
                                        : accurate_as<at::BFloat16>(stock.first, result.first, Precision::kBf16Op);
}

}  // namespace ipexrun::preload
