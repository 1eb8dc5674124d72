#include "preload/plugin/graph/convolution_pack.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/DimVector.h>

#include <array>
#include <cstring>
#include <vector>

#include "kernels/linear_f32.h"
#include "kernels/winograd.h"
#include "preload/memory/room.h"
#include "preload/plugin/adapters/digest.h"
#include "preload/plugin/candidate_kernels.h"
#include "preload/plugin/graph/convolution_ways.h"
#include "preload/plugin/parallel.h"
#include "preload/plugin/scratch.h"
#include "preload/plugin/weight_use.h"
#include "preload/select/looks.h"

namespace ipexrun::preload::graph {
namespace {

/// What small tensors held when the pack was made, undefined included, as hashes: they are asked for in every call, when a model's weights
/// have put the tensors themselves out of the caches.
class Contents {
 public:
  explicit Contents(const std::array<at::Tensor, 5>& of) {
    for (std::size_t i = 0; i < of.size(); ++i) {
      if (of[i].defined()) held_[i] = {true, of[i].scalar_type(), c10::DimVector(of[i].sizes()), hash_of(of[i])};
    }
  }

  [[nodiscard]] bool are(const std::array<const at::Tensor*, 5>& now) const {
    for (const at::Tensor* one : now) {
      const auto* impl = reinterpret_cast<const char*>(one->unsafeGetTensorImpl());
      for (int line = 0; line < 3; ++line) __builtin_prefetch(impl + 64 * line);
    }
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (now[i]->defined() != held_[i].defined) return false;
      if (held_[i].defined && !is(held_[i], *now[i])) return false;
    }
    return true;
  }

 private:
  struct Held {
    bool defined = false;
    at::ScalarType dtype = at::kFloat;
    c10::DimVector sizes;
    std::uint64_t hash = 0;
  };

  static std::uint64_t hash_of(const at::Tensor& tensor) {
    const at::Tensor whole = tensor.is_contiguous() ? tensor : tensor.contiguous();
    return full_hash_of_run(whole.const_data_ptr(), whole.nbytes());
  }

  static bool is(const Held& held, const at::Tensor& now) {
    return now.scalar_type() == held.dtype && now.sizes() == at::IntArrayRef(held.sizes) && hash_of(now) == held.hash;
  }

  std::array<Held, 5> held_;
};

class FoldedPack final : public Pack {
 public:
  FoldedPack(Folded folded, const at::Tensor& bias, const Norm& norm)
      : folded_(std::move(folded)), made_from_({bias, norm.mean, norm.variance, norm.scale, norm.shift}) {}

  [[nodiscard]] std::size_t size_bytes() const noexcept override { return folded_.weight->size_bytes(); }
  [[nodiscard]] const Folded& folded() const { return folded_; }
  [[nodiscard]] bool is_of(const at::Tensor& bias, const Norm& norm) const {
    return made_from_.are({&bias, &norm.mean, &norm.variance, &norm.scale, &norm.shift});
  }

 private:
  Folded folded_;
  Contents made_from_;
};

bool is_bf16(Method method) {
  return method == Method::kProduct || method == Method::kOwnBf16 || method == Method::kOnednnBf16 || method == Method::kWindowsBf16 ||
         method == Method::kWinogradBf16;
}

bool is_of_windows(Method method) { return method == Method::kWindowsF32 || method == Method::kWindowsBf16; }

/// With packs that the op tier does not know.
bool is_of_graphs(Method method) { return is_of_windows(method) || is_winograd(method); }

int candidate_of(Method method) {
  switch (method) {
    case Method::kStock:
      return kStock;
    case Method::kProduct:
    case Method::kOwnBf16:
    case Method::kWindowsBf16:
    case Method::kWinogradBf16:
      return kOwnBf16;
    case Method::kOwnF32:
    case Method::kWindowsF32:
    case Method::kPartsF32:
    case Method::kWinogradF32:
    case Method::kWinogradPartsF32:
    case Method::kWinogradLargeF32:
      return kOwnF32;
    case Method::kOnednnBf16:
      return kOnednnBf16Packed;
    case Method::kOnednnF32:
      return kOnednnF32Packed;
  }
  return kStock;
}

/// [kernel, channels in, channels out]
std::shared_ptr<const TensorPack> windows_pack(const ConvolutionCall& call, bool bf16) {
  const at::Tensor& w = *call.w;
  const at::Tensor lies = w.dim() == 4 ? w.contiguous(at::MemoryFormat::ChannelsLast) : w.transpose(1, 2).contiguous();
  const std::int64_t k = call.depth();
  const std::int64_t n = call.out_channels();
  const std::size_t bytes = bf16 ? kernels::packed_b_bytes(k, n) : kernels::packed_f32_bytes(k, n, false);
  if (bytes == 0) return nullptr;
  at::Tensor to = pack_memory(bytes);
  if (bf16) {
    kernels::pack_b({lies.const_data_ptr(), kernel_dtype(lies), k, n, 1, k}, to.mutable_data_ptr(), torch_pool(), isa_of_process());
  } else {
    kernels::pack_f32({lies.const_data_ptr(), false, k, n, 1, k}, to.mutable_data_ptr(), torch_pool(), isa_of_process());
  }
  return std::make_shared<const TensorPack>(std::move(to), bytes);
}

std::shared_ptr<const TensorPack> winograd_pack(const ConvolutionCall& call, bool bf16, int tile) {
  const at::Tensor& w = *call.w;
  const std::size_t bytes = kernels::packed_winograd_bytes(call.in_channels(), call.out_channels(), bf16, tile);
  if (bytes == 0) return nullptr;
  at::Tensor to = pack_memory(bytes);
  const std::int64_t strides[4] = {w.stride(0), w.stride(1), w.stride(2), w.stride(3)};
  kernels::pack_winograd(w.const_data_ptr(), kernel_dtype(w), strides, call.in_channels(), call.out_channels(), bf16, tile,
                         to.mutable_data_ptr(), torch_pool());
  return std::make_shared<const TensorPack>(std::move(to), bytes);
}

std::shared_ptr<const TensorPack> made(const ConvolutionCall& call, Method method) {
  // Windows of one pixel have packs of two kinds, of which the op tier knows the product's.
  if (method == Method::kOwnBf16) return call.own_pack(kernels::DType::kBf16);
  if (is_of_windows(method)) return windows_pack(call, is_bf16(method));
  if (is_winograd(method)) return winograd_pack(call, is_bf16(method), winograd_tile(method));
  return call.pack(0, candidate_of(method));
}

std::int64_t address(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(tensor.const_data_ptr())) : 0;
}

at::Tensor bias_for(const at::Tensor& bias, Method method) {
  if (!bias.defined()) return bias;
  // oneDNN reads it in the type of the weight; ours has both.
  const bool onednn = method == Method::kOnednnBf16 || method == Method::kOnednnF32;
  if (!onednn) return bias.contiguous();
  return bias.to(is_bf16(method) ? at::kBFloat16 : at::kFloat).contiguous();
}

}  // namespace

Method pack_of(Method method) {
  if (method == Method::kPartsF32) return Method::kWindowsF32;
  return method == Method::kWinogradPartsF32 ? Method::kWinogradF32 : method;
}

bool is_winograd(Method method) {
  return pack_of(method) == Method::kWinogradF32 || method == Method::kWinogradBf16 || method == Method::kWinogradLargeF32;
}

int winograd_tile(Method method) { return method == Method::kWinogradLargeF32 ? 4 : 2; }

std::pair<at::Tensor, at::Tensor> fold(const at::Tensor& weight, const at::Tensor& bias, const Norm& norm) {
  at::Tensor factor = (norm.variance.to(at::kDouble) + norm.eps).rsqrt();
  if (norm.scale.defined()) factor = factor * norm.scale.to(at::kDouble);
  at::Tensor added = (bias.defined() ? bias.to(at::kDouble) - norm.mean.to(at::kDouble) : -norm.mean.to(at::kDouble)) * factor;
  if (norm.shift.defined()) added = added + norm.shift.to(at::kDouble);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(weight.dim()), 1);
  rows[0] = weight.size(0);
  return {(weight.to(at::kDouble) * factor.reshape(rows)).to(at::kFloat), added.to(at::kFloat)};
}

namespace {

/// The weight as the method's pack stands for it.
WeightUse use_of(const ConvolutionCall& call, const Norm& norm, Method method) {
  const at::Tensor bias = call.bias == nullptr ? at::Tensor() : *call.bias;
  WeightUse use = weight_use_of(*call.w);
  call.weight_view(0, &use.key);
  const bool shared = !norm.any() && !is_of_graphs(method) && (method != Method::kOwnBf16 || !call.pointwise());
  if (!shared) {
    use.key.strides[0] =
        static_cast<std::int64_t>(digest_of({use.key.strides[0], static_cast<std::int64_t>(method), address(norm.mean),
                                             address(norm.variance), address(norm.scale), address(norm.shift), address(bias)}));
    std::int64_t eps = 0;
    std::memcpy(&eps, &norm.eps, sizeof eps);
    use.key.strides[1] = static_cast<std::int64_t>(digest_of({use.key.strides[1], eps}));
  }
  return use;
}

}  // namespace

void forget_pack(TierState& state, const ConvolutionCall& call, const Norm& norm, Method method) {
  const at::Tensor& w = *call.w;
  const WeightState known = state.weights.use(
      use_of(call, norm, method), [&] { return liveness_of(w); }, true);
  if (known.weight != nullptr && !state.weights.read_only()) state.weights.drop_pack_of(*known.weight, candidate_of(method));
}

Folded packed(TierState& state, const ConvolutionCall& call, const Norm& norm, Method method) {
  const at::Tensor& w = *call.w;
  const at::Tensor bias = call.bias == nullptr ? at::Tensor() : *call.bias;
  const WeightUse use = use_of(call, norm, method);
  WeightState known = state.weights.use(
      use, [&] { return liveness_of(w); }, true);
  if (known.weight == nullptr) return {};
  const int candidate = candidate_of(method);
  const auto& have = known.packs[static_cast<std::size_t>(candidate)];
  if (have != nullptr) {
    if (!norm.any()) return {std::static_pointer_cast<const TensorPack>(have), bias_for(bias, method), kernel_dtype(w)};
    const auto folded = std::static_pointer_cast<const FoldedPack>(have);
    if (folded->is_of(bias, norm)) return folded->folded();
  }
  if (state.weights.read_only() || !state.weights.may_pack(*known.weight)) return {};
  if (by_onednn(method) && !has_room_for_pack(use.size_bytes)) return {};
  state.weights.pin_bytes(*known.weight, use);
  if (!norm.any()) {
    Folded plain{made(call, method), bias_for(bias, method), kernel_dtype(w)};
    if (plain.weight == nullptr || !state.weights.put(*known.weight, candidate, plain.weight, true)) return {};
    return plain;
  }
  const auto [weight, added] = fold(w, bias, norm);
  ConvolutionCall folded_call = call;
  folded_call.w = &weight;
  folded_call.bias = &added;
  folded_call.dtype = at::kFloat;
  const Folded folded{made(folded_call, method), bias_for(added, method)};
  if (folded.weight == nullptr) return {};
  if (!state.weights.put(*known.weight, candidate, std::make_shared<const FoldedPack>(folded, bias, norm), true)) return {};
  return folded;
}

}  // namespace ipexrun::preload::graph
