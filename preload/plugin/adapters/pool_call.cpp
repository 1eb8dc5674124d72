// Sites and the candidate of pooling: our own vector code. The largest elements and their places are stock's exactly, means are
// sums in fp32; no error of an output depends on other windows, so one check holds for the site.
#include "preload/plugin/adapters/pool_call.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_cpu_dispatch.h>

#include <cmath>

#include "configs/contract/decision.h"
#include "preload/plugin/adapters/digest.h"
#include "preload/plugin/adapters/sampling.h"
#include "preload/plugin/candidate_kernels.h"
#include "preload/plugin/parallel.h"

namespace ipexrun::preload {
namespace {

struct Range {
  std::int64_t begin;
  std::int64_t end;
  std::int64_t counted;  ///< padding included
};

Range range_of(const kernels::PoolWindow& window, std::int64_t size, std::int64_t i) {
  const std::int64_t start = i * window.stride - window.pad;
  return {std::max<std::int64_t>(start, 0), std::min(start + window.size, size), std::min(start + window.size, size + window.pad) - start};
}

Range adaptive_range(std::int64_t size, std::int64_t out, std::int64_t i) { return {i * size / out, ((i + 1) * size + out - 1) / out, 0}; }

std::string window_text(char name, std::int64_t down, std::int64_t across) {
  return std::string(",") + name + '=' + std::to_string(down) + (down == across ? "" : 'x' + std::to_string(across));
}

}  // namespace

SiteId PoolCall::site_id() const {
  SiteId id;
  id.op = static_cast<std::uint32_t>(op);
  id.form = static_cast<std::uint32_t>(x->scalar_type()) | (args.count_padding ? 1u << 8 : 0);
  id.threads = at::get_num_threads();
  id.batch = round_up_rows(args.planes);
  id.m = args.height;
  id.n = args.width;
  id.k = args.out_height;
  id.detail = digest_of({args.out_width, args.down.size, args.down.stride, args.down.pad, args.down.dilation, args.across.size,
                         args.across.stride, args.across.pad, args.across.dilation, args.divisor});
  return id;
}

SiteKey PoolCall::site_key(const SiteId& id, const TierOptions& options) const {
  SiteKey key;
  key.op = op_name(op);
  key.dtypes = x->scalar_type() == at::kFloat ? "f32" : "bf16";
  key.layouts = "c";
  key.sizes = "planes=" + std::to_string(id.batch) + ",h=" + std::to_string(args.height) + ",w=" + std::to_string(args.width) +
              ",to=" + std::to_string(args.out_height) + 'x' + std::to_string(args.out_width);
  if (kind != PoolKind::kAdaptive) {
    key.sizes += window_text('k', args.down.size, args.across.size) + window_text('s', args.down.stride, args.across.stride) +
                 window_text('p', args.down.pad, args.across.pad);
    if (kind == PoolKind::kMax) key.sizes += window_text('d', args.down.dilation, args.across.dilation);
    if (args.count_padding) key.sizes += ",padding=1";
    if (args.divisor != 0) key.sizes += ",by=" + std::to_string(args.divisor);
  }
  key.threads = id.threads;
  key.isa = level_name(options.isa);
  key.torch = options.torch_minor;
  return key;
}

std::vector<int> PoolCall::candidates(const TierOptions& options) const {
  if (!kernels::pool_supported(options.isa)) return {};
  return {kOwnF32};
}

Outputs PoolCall::run(int /*candidate*/, const Packs& /*packs*/, IsaSet isa) const {
  std::vector<std::int64_t> sizes(x->sizes().begin(), x->sizes().end());
  sizes[sizes.size() - 2] = args.out_height;
  sizes[sizes.size() - 1] = args.out_width;
  Outputs outputs(at::cpu::empty(sizes, x->options()));
  kernels::PoolArgs call = args;
  call.from = x->const_data_ptr();
  call.to = outputs.first.mutable_data_ptr();
  if (kind == PoolKind::kMax) {
    outputs.more = {at::cpu::empty(sizes, x->options().dtype(at::kLong))};
    call.indices = outputs.more[0].mutable_data_ptr<std::int64_t>();
  }
  const auto pool = kind == PoolKind::kMax       ? kernels::max_pool
                    : kind == PoolKind::kAverage ? kernels::average_pool
                                                 : kernels::adaptive_average_pool;
  if (!pool(call, torch_pool(), isa)) return {};
  return outputs;
}

/// Of the mean at an index of the output.
template <typename T>
double PoolCall::truth(std::int64_t index) const {
  const std::int64_t column = index % args.out_width;
  const std::int64_t row = index / args.out_width % args.out_height;
  const std::int64_t plane = index / args.out_width / args.out_height;
  const bool adaptive = kind == PoolKind::kAdaptive;
  const Range rows = adaptive ? adaptive_range(args.height, args.out_height, row) : range_of(args.down, args.height, row);
  const Range columns = adaptive ? adaptive_range(args.width, args.out_width, column) : range_of(args.across, args.width, column);
  if (rows.begin >= rows.end || columns.begin >= columns.end) return 0;
  double sum = 0;
  const T* from = x->const_data_ptr<T>() + plane * args.height * args.width;
  for (std::int64_t y = rows.begin; y < rows.end; ++y) {
    for (std::int64_t i = columns.begin; i < columns.end; ++i) sum += static_cast<double>(from[y * args.width + i]);
  }
  const std::int64_t clipped = (rows.end - rows.begin) * (columns.end - columns.begin);
  const std::int64_t count = args.divisor != 0 ? args.divisor : args.count_padding ? rows.counted * columns.counted : clipped;
  return sum / static_cast<double>(count);
}

template <typename T>
bool PoolCall::accurate_as(const Outputs& stock, const Outputs& result, Precision precision) const {
  const std::int64_t count = stock.first.numel();
  const T* s = stock.first.const_data_ptr<T>();
  const T* c = result.first.const_data_ptr<T>();
  if (kind == PoolKind::kMax) {
    return same(s, c, count) && same(stock.more[0].const_data_ptr<std::int64_t>(), result.more[0].const_data_ptr<std::int64_t>(), count);
  }
  const bool adaptive = kind == PoolKind::kAdaptive;
  const std::int64_t down = adaptive ? args.height / args.out_height + 2 : args.down.size;
  const std::int64_t across = adaptive ? args.width / args.out_width + 2 : args.across.size;
  const std::int64_t sampled = std::clamp<std::int64_t>(kSampledProducts / (down * across), 1, std::min(count, kSampledElements));
  Samples samples;
  spread(count, sampled, [&](std::int64_t i) { samples.add(truth<T>(i), s[i], c[i]); });
  return samples.pass(1, s, c, count, precision);
}

bool PoolCall::accurate(const Outputs& stock, const Outputs& result, int /*candidate*/) const {
  if (x->scalar_type() == at::kBFloat16) return accurate_as<at::BFloat16>(stock, result, Precision::kBf16Op);
  return accurate_as<float>(stock, result, Precision::kFloat32);
}

}  // namespace ipexrun::preload
