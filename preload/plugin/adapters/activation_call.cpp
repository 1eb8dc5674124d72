// Sites and the candidate of elementwise activations: our own vector code, in fp32. No error of it depends on other elements, so one
// check holds for the site.
#include "preload/plugin/adapters/activation_call.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_cpu_dispatch.h>
#include <ATen/ops/empty_strided_cpu_dispatch.h>

#include <cmath>
#include <cstring>
#include <numbers>

#include "configs/contract/decision.h"
#include "preload/plugin/adapters/sampling.h"
#include "preload/plugin/candidate_kernels.h"
#include "preload/plugin/parallel.h"

namespace ipexrun::preload {
namespace {

double truth_of(kernels::Activation kind, double x) {
  switch (kind) {
    case kernels::Activation::kGelu:
      return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
    case kernels::Activation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case kernels::Activation::kTanh:
      return std::tanh(x);
    case kernels::Activation::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case kernels::Activation::kSilu:
      return x / (1 + std::exp(-x));
  }
  return x;
}

/// `x`, `stock` and `candidate` are dense in the same order: element by element, wherever an element lies.
template <typename T>
bool accurate_as(kernels::Activation kind, const at::Tensor& x, const at::Tensor& stock, const at::Tensor& candidate, Precision precision) {
  const T* from = x.const_data_ptr<T>();
  const T* s = stock.const_data_ptr<T>();
  const T* c = candidate.const_data_ptr<T>();
  Samples samples;
  spread(x.numel(), std::min(x.numel(), kSampledElements),
         [&](std::int64_t i) { samples.add(truth_of(kind, static_cast<double>(from[i])), s[i], c[i]); });
  return samples.pass(1, s, c, x.numel(), precision);
}

/// Memory for a result that has stock's strides: those of its iterator, which rewrites strides of dimensions of size 1 where the
/// input counts as contiguous or as channels last. Elements lie in the same order as those of `x` in every case.
at::Tensor empty_as_stock(const at::Tensor& x) {
  if (x.is_contiguous()) return at::cpu::empty(x.sizes(), x.options());
  if (x.is_contiguous(at::MemoryFormat::ChannelsLast)) return at::cpu::empty(x.sizes(), x.options(), at::MemoryFormat::ChannelsLast);
  return at::cpu::empty_strided(x.sizes(), x.strides(), x.options());
}

}  // namespace

SiteId ActivationCall::site_id() const {
  SiteId id;
  id.op = static_cast<std::uint32_t>(op);
  id.form = static_cast<std::uint32_t>(x->scalar_type()) | static_cast<std::uint32_t>(kind) << 8;
  id.threads = at::get_num_threads();
  id.m = round_up_rows(x->numel());
  return id;
}

SiteKey ActivationCall::site_key(const SiteId& id, const TierOptions& options) const {
  SiteKey key;
  key.op = op_name(op);
  key.dtypes = x->scalar_type() == at::kFloat ? "f32" : "bf16";
  key.layouts = "c";
  key.sizes = "elements=" + std::to_string(id.m) + (kind == kernels::Activation::kGeluTanh ? ",tanh=1" : "");
  key.threads = id.threads;
  key.isa = level_name(options.isa);
  key.torch = options.torch_minor;
  return key;
}

std::vector<int> ActivationCall::candidates(const TierOptions& options) const {
  if (std::strcmp(kernels::activation_variant(options.isa), "ref") == 0) return {};
  return {kOwnF32};
}

Outputs ActivationCall::run(int /*candidate*/, const Packs& /*packs*/, IsaSet isa) const {
  at::Tensor result = empty_as_stock(*x);
  kernels::ActivationArgs args;
  args.kind = kind;
  args.dtype = kernel_dtype(*x);
  args.from = x->const_data_ptr();
  args.to = result.mutable_data_ptr();
  args.n = x->numel();
  kernels::activation(args, torch_pool(), isa);
  return result;
}

bool ActivationCall::accurate(const Outputs& stock, const Outputs& result, int /*candidate*/) const {
  if (x->scalar_type() == at::kBFloat16) return accurate_as<at::BFloat16>(kind, *x, stock.first, result.first, Precision::kBf16Op);
  return accurate_as<float>(kind, *x, stock.first, result.first, Precision::kFloat32);
}

}  // namespace ipexrun::preload
