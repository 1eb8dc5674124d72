// Sites and the candidate of group norm and of batch norm with known moments: our own vector code. No error of a group depends on other
// groups, so one check holds for the site.
#include "preload/plugin/adapters/channel_norm_call.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_cpu_dispatch.h>

#include <cmath>

#include "configs/contract/decision.h"
#include "kernels/normalize.h"
#include "preload/plugin/adapters/digest.h"
#include "preload/plugin/candidate_kernels.h"
#include "preload/plugin/parallel.h"

namespace ipexrun::preload {
namespace {

constexpr std::int64_t kSampledGroups = 4;

double element_or(const at::Tensor* tensor, std::int64_t i, double missing) { return tensor == nullptr ? missing : element(*tensor, i); }

bool finite(const at::Tensor& tensor) {
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    if (!std::isfinite(element(tensor, i))) return false;
  }
  return true;
}

}  // namespace

SiteId ChannelNormCall::site_id() const {
  SiteId id;
  id.op = static_cast<std::uint32_t>(op);
  id.form = static_cast<std::uint32_t>(x->scalar_type()) | static_cast<std::uint32_t>(parameters) << 8 | (gain != nullptr ? 1u << 16 : 0) |
            (bias != nullptr ? 1u << 17 : 0) | (adjacent ? 1u << 18 : 0);
  id.threads = at::get_num_threads();
  id.batch = round_up_rows(images);
  id.m = round_up_rows(pixels);
  id.n = channels;
  id.detail = digest_of({groups, x->dim()});
  return id;
}

SiteKey ChannelNormCall::site_key(const SiteId& id, const TierOptions& options) const {
  const auto word = [](at::ScalarType dtype) { return std::string(dtype == at::kFloat ? "f32" : "bf16"); };
  SiteKey key;
  key.op = op_name(op);
  key.dtypes = word(x->scalar_type()) + ',' + word(parameters);
  key.layouts = std::string(adjacent ? "l" : "c") + (gain != nullptr ? "c" : "") + (bias != nullptr ? "c" : "");
  key.sizes = "images=" + std::to_string(id.batch) + ",channels=" + std::to_string(id.n) + ",pixels=" + std::to_string(id.m) +
              ",dims=" + std::to_string(x->dim()) + (mean == nullptr ? ",groups=" + std::to_string(groups) : "");
  key.threads = id.threads;
  key.isa = level_name(options.isa);
  key.torch = options.torch_minor;
  return key;
}

std::vector<int> ChannelNormCall::candidates(const TierOptions& options) const {
  if (!kernels::normalize_supported(options.isa)) return {};
  return {kOwnF32};
}

Outputs ChannelNormCall::run_group_norm(IsaSet isa) const {
  Outputs outputs(at::cpu::empty(x->sizes(), x->options()));
  outputs.more = {at::cpu::empty({images, groups}, x->options().dtype(parameters)),
                  at::cpu::empty({images, groups}, x->options().dtype(parameters))};
  kernels::GroupNormArgs args;
  args.from = x->const_data_ptr();
  args.to = outputs.first.mutable_data_ptr();
  args.dtype = kernel_dtype(*x);
  args.rows = images * groups;
  args.columns = channels / groups * pixels;
  if (gain != nullptr) args.weight = gain->const_data_ptr();
  if (bias != nullptr) args.bias = bias->const_data_ptr();
  args.parameter_dtype = args.stats_dtype = kernel_dtype(outputs.more[0]);
  args.eps = eps;
  args.mean = outputs.more[0].mutable_data_ptr();
  args.rstd = outputs.more[1].mutable_data_ptr();
  args.groups = groups;
  args.pixels = pixels;
  // Of a group with an infinity stock saves a mean of infinity or NaN, depending on where it stands: such calls are stock's.
  if (!kernels::group_norm(args, torch_pool(), isa) || !finite(outputs.more[0]) || !finite(outputs.more[1])) return {};
  return outputs;
}

Outputs ChannelNormCall::run_batch_norm(IsaSet isa) const {
  Outputs outputs(adjacent && x->dim() > 2 ? at::cpu::empty(x->sizes(), x->options(), x->suggest_memory_format())
                                           : at::cpu::empty(x->sizes(), x->options()));
  outputs.more = {at::cpu::empty({0}, x->options().dtype(parameters)), at::cpu::empty({0}, x->options().dtype(parameters))};
  std::vector<float> scales(static_cast<std::size_t>(2 * channels));
  for (std::int64_t c = 0; c < channels; ++c) {
    const auto at = static_cast<std::size_t>(c);
    const double scale = element_or(gain, c, 1) / std::sqrt(element_or(variance, c, 1) + eps);
    scales[at] = static_cast<float>(scale);
    scales[at + static_cast<std::size_t>(channels)] = static_cast<float>(element_or(bias, c, 0) - element_or(mean, c, 0) * scale);
  }
  kernels::ChannelScaleArgs args;
  args.from = x->const_data_ptr();
  args.to = outputs.first.mutable_data_ptr();
  args.dtype = kernel_dtype(*x);
  args.rows = images * (adjacent ? pixels : channels);
  args.columns = adjacent ? channels : pixels;
  args.channels = channels;
  args.adjacent = adjacent;
  args.scale = scales.data();
  args.shift = scales.data() + channels;
  if (!kernels::scale_channels(args, torch_pool(), isa)) return {};
  return outputs;
}

Outputs ChannelNormCall::run(int /*candidate*/, const Packs& /*packs*/, IsaSet isa) const {
  return mean != nullptr ? run_batch_norm(isa) : run_group_norm(isa);
}

/// Some elements of some groups, spread over both, against moments in double.
template <typename T>
void ChannelNormCall::sample_group(Samples* samples, const T* s, const T* c) const {
  const std::int64_t count = channels / groups * pixels;
  const T* from = x->const_data_ptr<T>();
  const std::int64_t sampled = std::min(images * groups, std::max<std::int64_t>(kSampledProducts / count, 1));
  spread(images * groups, std::min(sampled, kSampledGroups), [&](std::int64_t group) {
    const T* row = from + group * count;
    double middle = 0;
    for (std::int64_t i = 0; i < count; ++i) middle += static_cast<double>(row[i]);
    middle /= static_cast<double>(count);
    double square = 0;
    for (std::int64_t i = 0; i < count; ++i) square += (static_cast<double>(row[i]) - middle) * (static_cast<double>(row[i]) - middle);
    const double scale = 1 / std::sqrt(square / static_cast<double>(count) + eps);
    spread(count, std::min(count, kSampledElements), [&](std::int64_t i) {
      const std::int64_t channel = group % groups * (channels / groups) + i / pixels;
      const double truth = (static_cast<double>(row[i]) - middle) * scale * element_or(gain, channel, 1) + element_or(bias, channel, 0);
      samples->add(truth, s[group * count + i], c[group * count + i]);
    });
  });
}

template <typename T>
bool ChannelNormCall::accurate_as(const at::Tensor& stock, const at::Tensor& candidate, Precision precision) const {
  const T* s = stock.const_data_ptr<T>();
  const T* c = candidate.const_data_ptr<T>();
  const std::int64_t count = stock.numel();
  Samples samples;
  if (mean == nullptr) {
    sample_group(&samples, s, c);
  } else {
    const T* from = x->const_data_ptr<T>();
    spread(count, std::min(count, kSampledElements), [&](std::int64_t i) {
      const std::int64_t channel = adjacent ? i % channels : i / pixels % channels;
      const double unit = (static_cast<double>(from[i]) - element_or(mean, channel, 0)) / std::sqrt(element_or(variance, channel, 1) + eps);
      samples.add(unit * element_or(gain, channel, 1) + element_or(bias, channel, 0), s[i], c[i]);
    });
  }
  return samples.pass(1, s, c, count, precision);
}

bool ChannelNormCall::accurate(const Outputs& stock, const Outputs& result, int /*candidate*/) const {
  for (std::size_t i = 0; i < stock.more.size(); ++i) {
    if (!statistics_agree(stock.more[i], result.more[i])) return false;
  }
  if (x->scalar_type() == at::kBFloat16) return accurate_as<at::BFloat16>(stock.first, result.first, Precision::kBf16Op);
  return accurate_as<float>(stock.first, result.first, Precision::kFloat32);
}

}  // namespace ipexrun::preload
