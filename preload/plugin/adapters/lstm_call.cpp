// Sites and the candidate of an LSTM layer: stock's own oneDNN layer in bf16, with weights cast once.
#include "preload/plugin/adapters/lstm_call.h"

#include <ATen/Parallel.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/mkldnn_rnn_layer_cpu_dispatch.h>

#include "configs/contract/decision.h"
#include "preload/plugin/candidate_kernels.h"

namespace ipexrun::preload {
namespace {

constexpr float kMostInCell = 16;  ///< its tanh is 1 from 9 on, so that gates of a usual layer keep it below

/// Where one time step and sequence ends up wrong, the others do not hide it: each row of the last dimension is a sample.
bool accurate_rows(const at::Tensor& stock, const at::Tensor& result) {
  const at::Tensor s = stock.contiguous();
  const at::Tensor c = result.contiguous();
  const float* s_data = s.const_data_ptr<float>();
  const float* c_data = c.const_data_ptr<float>();
  const std::vector<double> truth(s_data, s_data + s.numel());
  const std::vector<double> values(c_data, c_data + c.numel());
  const auto rows = static_cast<std::size_t>(s.numel() / s.size(-1));
  return check_accuracy(truth, truth, values, rows, Precision::kBf16Op).pass;
}

}  // namespace

SiteId LstmCall::site_id() const {
  SiteId id;
  id.op = static_cast<std::uint32_t>(op);
  id.form = static_cast<std::uint32_t>(x->scalar_type()) | (reverse ? 1u << 8 : 0) | (batch_first ? 1u << 9 : 0);
  id.threads = at::get_num_threads();
  id.batch = round_up_rows(x->size(1));
  id.m = round_up_rows(x->size(0));
  id.n = 4 * hidden;
  id.k = x->size(2);
  return id;
}

SiteKey LstmCall::site_key(const SiteId& id, const TierOptions& options) const {
  SiteKey key;
  key.op = op_name(op);
  key.dtypes = "f32,f32,f32";
  key.layouts = "ccc";
  key.sizes = "t=" + std::to_string(id.m) + ",b=" + std::to_string(id.batch) + ",i=" + std::to_string(id.k) +
              ",h=" + std::to_string(hidden) + (reverse ? ",reverse=1" : "");
  key.threads = id.threads;
  key.isa = level_name(options.isa);
  key.torch = options.torch_minor;
  return key;
}

std::vector<int> LstmCall::candidates(const TierOptions& options) const {
  if (!bf16_inside_allowed(options) || !bf16_is_native(options.isa)) return {};
  return {kOnednnBf16Packed};
}

void LstmCall::weight_view(int i, WeightKey* key) const {
  key->sizes = {x->size(2), 4 * hidden};
  key->strides = {weight(i)->size(1), i};
}

std::shared_ptr<const TensorPack> LstmCall::pack(int i, int /*candidate*/) const {
  at::Tensor cast = weight(i)->to(at::kBFloat16);
  const std::size_t bytes = cast.nbytes();
  return std::make_shared<const TensorPack>(std::move(cast), bytes);
}

Outputs LstmCall::run(int /*candidate*/, const Packs& packs, IsaSet /*isa*/) const {
  if (packs[0] == nullptr || packs[1] == nullptr) return {};
  const auto half = [](const at::Tensor& tensor) { return tensor.to(at::kBFloat16); };
  auto [y, h, c, workspace] =
      at::cpu::mkldnn_rnn_layer(half(*x), packs[0]->packed(), packs[1]->packed(), half(*bias[0]), half(*bias[1]), half(*state[0]),
                                half(*state[1]), reverse, {}, kLstmMode, hidden, layers, true, bidirectional, batch_first, false);
  // A cell is kept in bf16 from step to step: of one that counts, what is added is lost once it is less than half of the last bit.
  const auto [least, most] = at::aminmax(c);
  if (!(most.item<float>() <= kMostInCell && least.item<float>() >= -kMostInCell)) return {};
  Outputs outputs(y.to(at::kFloat));
  outputs.more = {h.to(at::kFloat), c.to(at::kFloat), workspace};
  return outputs;
}

/// The truth is stock's own fp32 result: an fp64 one would take a whole sequence for a single number. It makes the bound stricter.
bool LstmCall::accurate(const Outputs& stock, const Outputs& result, int /*candidate*/) const {
  return accurate_rows(stock.first, result.first) && accurate_rows(stock.more[0], result.more[0]) &&
         accurate_rows(stock.more[1], result.more[1]);
}

}  // namespace ipexrun::preload
