// Sites and the candidate of products with weights of 4 bits: our own kernel, with fp32 sums as stock's.
#include "preload/plugin/adapters/linear_int4_call.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_cpu_dispatch.h>

#include <algorithm>

#include "configs/contract/decision.h"
#include "kernels/bf16.h"
#include "preload/plugin/adapters/sampling.h"
#include "preload/plugin/parallel.h"

namespace ipexrun::preload {

kernels::LinearInt4Args LinearInt4Call::args() const {
  kernels::LinearInt4Args args;
  args.a = static_cast<const std::uint16_t*>(a->const_data_ptr());
  args.b = b->const_data_ptr<std::uint8_t>();
  args.scales_and_zeros = static_cast<const std::uint16_t*>(pairs->const_data_ptr());
  args.m = a->size(0);
  args.n = args.ldc = b->size(0);
  args.k = args.lda = a->size(1);
  args.group = group;
  return args;
}

SiteId LinearInt4Call::site_id() const {
  SiteId id;
  id.op = static_cast<std::uint32_t>(op);
  id.form = static_cast<std::uint32_t>(a->scalar_type()) | static_cast<std::uint32_t>(group) << 8;
  id.threads = at::get_num_threads();
  id.m = round_up_rows(a->size(0));
  id.n = b->size(0);
  id.k = a->size(1);
  return id;
}

SiteKey LinearInt4Call::site_key(const SiteId& id, const TierOptions& options) const {
  SiteKey key;
  key.op = op_name(op);
  key.dtypes = "bf16,i4,bf16";
  key.layouts = "ccc";
  key.sizes = "m=" + std::to_string(id.m) + ",n=" + std::to_string(id.n) + ",k=" + std::to_string(id.k) + ",group=" + std::to_string(group);
  key.threads = id.threads;
  key.isa = level_name(options.isa);
  key.torch = options.torch_minor;
  return key;
}

std::vector<int> LinearInt4Call::candidates(const TierOptions& options) const {
  if (!kernels::linear_int4_supported(args(), options.isa)) return {};
  return {kOwnF32};
}

Outputs LinearInt4Call::run(int /*candidate*/, const Packs& /*packs*/, IsaSet isa) const {
  kernels::LinearInt4Args call = args();
  at::Tensor result = at::cpu::empty({call.m, call.n}, a->options());
  call.c = static_cast<std::uint16_t*>(result.mutable_data_ptr());
  if (!kernels::linear_int4(call, torch_pool(), isa)) return {};
  return result;
}

bool LinearInt4Call::accurate(const Outputs& stock, const Outputs& result, int /*candidate*/) const {
  const kernels::LinearInt4Args call = args();
  const auto* s = stock.first.const_data_ptr<at::BFloat16>();
  const auto* c = result.first.const_data_ptr<at::BFloat16>();
  const auto truth = [&](std::int64_t at) {
    const std::int64_t column = at % call.n;
    const std::int64_t in_block = column % kernels::kInt4Columns;
    const std::uint8_t* bytes = call.b + column / kernels::kInt4Columns * call.k * 32 + in_block % 32;
    double sum = 0;
    for (std::int64_t i = 0; i < call.k; ++i) {
      const std::uint16_t* pair = call.scales_and_zeros + (i / group * call.n + column) * 2;
      const int q = in_block < 32 ? bytes[i * 32] & 15 : bytes[i * 32] >> 4;
      const double weight =
          (q - 8) * static_cast<double>(kernels::bf16_to_f32(pair[0])) + static_cast<double>(kernels::bf16_to_f32(pair[1]));
      sum += static_cast<double>(kernels::bf16_to_f32(call.a[at / call.n * call.k + i])) * weight;
    }
    return sum;
  };
  const std::int64_t count = stock.first.numel();
  Samples samples;
  spread(count, std::clamp<std::int64_t>(kSampledProducts / call.k, 1, count),
         [&](std::int64_t at) { samples.add(truth(at), s[at], c[at]); });
  return samples.pass(1, s, c, count, Precision::kBf16Op);
}

}  // namespace ipexrun::preload
