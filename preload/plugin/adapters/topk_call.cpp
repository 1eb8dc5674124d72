// Sites and the candidate of topk: our own scan. It fails, and stock answers, where equal elements could be returned in several orders;
// so its results are stock's exactly.
#include "preload/plugin/adapters/topk_call.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_cpu_dispatch.h>

#include "configs/contract/decision.h"
#include "kernels/topk.h"
#include "preload/plugin/parallel.h"

namespace ipexrun::preload {

SiteId TopkCall::site_id() const {
  SiteId id;
  id.op = static_cast<std::uint32_t>(op);
  id.form = largest ? 1 : 0;
  id.threads = at::get_num_threads();
  id.m = round_up_rows(rows);
  id.n = round_up_rows(columns);
  id.k = k;
  return id;
}

SiteKey TopkCall::site_key(const SiteId& id, const TierOptions& options) const {
  SiteKey key;
  key.op = op_name(op);
  key.dtypes = "f32";
  key.layouts = "c";
  key.sizes =
      "rows=" + std::to_string(id.m) + ",columns=" + std::to_string(id.n) + ",k=" + std::to_string(id.k) + (largest ? "" : ",smallest=1");
  key.threads = id.threads;
  key.isa = level_name(options.isa);
  key.torch = options.torch_minor;
  return key;
}

std::vector<int> TopkCall::candidates(const TierOptions& options) const {
  if (!kernels::topk_supported(options.isa)) return {};
  return {kOwnF32};
}

Outputs TopkCall::run(int /*candidate*/, const Packs& /*packs*/, IsaSet isa) const {
  std::vector<std::int64_t> sizes(x->sizes().begin(), x->sizes().end());
  sizes.back() = k;
  Outputs outputs(at::cpu::empty(sizes, x->options()));
  outputs.more = {at::cpu::empty(sizes, x->options().dtype(at::kLong))};
  kernels::TopkArgs args;
  args.from = x->const_data_ptr<float>();
  args.values = outputs.first.mutable_data_ptr<float>();
  args.indices = outputs.more[0].mutable_data_ptr<std::int64_t>();
  args.rows = rows;
  args.columns = columns;
  args.k = k;
  args.largest = largest;
  if (!kernels::topk(args, torch_pool(), isa)) return {};
  return outputs;
}

bool TopkCall::accurate(const Outputs& stock, const Outputs& result, int /*candidate*/) const {
  const float* s = stock.first.const_data_ptr<float>();
  const float* c = result.first.const_data_ptr<float>();
  const std::int64_t* places = stock.more[0].const_data_ptr<std::int64_t>();
  const std::int64_t* mine = result.more[0].const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < rows * k; ++i) {
    if (places[i] != mine[i] || (s[i] != c[i] && (s[i] == s[i] || c[i] == c[i]))) return false;
  }
  return true;
}

}  // namespace ipexrun::preload
