#include "preload/plugin/fast_paths.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/_native_multi_head_attention_cpu_dispatch.h>
#include <ATen/ops/_transformer_encoder_layer_fwd_cpu_dispatch.h>
#include <torch/library.h>

#include <array>

#include "preload/plugin/dispatcher.h"
#include "preload/plugin/register.h"

namespace ipexrun::preload {
namespace {

/// Of the matrices that one call multiplies by.
class Versions {
 public:
  explicit Versions(std::initializer_list<const at::Tensor*> weights) noexcept : outer_(inside) {
    for (const at::Tensor* weight : weights) {
      if (weight->defined() && weight->has_storage() && !weight->is_inference()) add(*weight);
    }
    inside = this;
  }
  ~Versions() { inside = outer_; }
  Versions(const Versions&) = delete;
  Versions& operator=(const Versions&) = delete;

  static std::optional<std::int64_t> of(const void* storage) noexcept {
    for (const Versions* here = inside; here != nullptr; here = here->outer_) {
      for (int i = 0; i < here->count_; ++i) {
        const Known& known = here->known_[static_cast<std::size_t>(i)];
        if (known.storage == storage) return known.one ? std::optional(known.version) : std::nullopt;
      }
    }
    return std::nullopt;
  }

 private:
  struct Known {
    const void* storage;
    std::int64_t version;
    bool one;  ///< parameters that share memory may have counters of their own
  };

  void add(const at::Tensor& weight) noexcept {
    const void* storage = weight.storage().unsafeGetStorageImpl();
    for (int i = 0; i < count_; ++i) {
      Known& known = known_[static_cast<std::size_t>(i)];
      if (known.storage == storage) {
        known.one = false;
        return;
      }
    }
    known_[static_cast<std::size_t>(count_++)] = {storage, static_cast<std::int64_t>(weight._version()), true};
  }

  static thread_local const Versions* inside;

  const Versions* outer_;
  int count_ = 0;
  std::array<Known, 4> known_{};
};

thread_local const Versions* Versions::inside = nullptr;

at::Tensor transformer_encoder_layer(const at::Tensor& src, std::int64_t embed_dim, std::int64_t num_heads, const at::Tensor& qkv_weight,
                                     const at::Tensor& qkv_bias, const at::Tensor& proj_weight, const at::Tensor& proj_bias, bool use_gelu,
                                     bool norm_first, double eps, const at::Tensor& norm_weight_1, const at::Tensor& norm_bias_1,
                                     const at::Tensor& norm_weight_2, const at::Tensor& norm_bias_2, const at::Tensor& ffn_weight_1,
                                     const at::Tensor& ffn_bias_1, const at::Tensor& ffn_weight_2, const at::Tensor& ffn_bias_2,
                                     const std::optional<at::Tensor>& mask, std::optional<std::int64_t> mask_type) {
  const Versions known({&qkv_weight, &proj_weight, &ffn_weight_1, &ffn_weight_2});
  return at::cpu::_transformer_encoder_layer_fwd(src, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, use_gelu,
                                                 norm_first, eps, norm_weight_1, norm_bias_1, norm_weight_2, norm_bias_2, ffn_weight_1,
                                                 ffn_bias_1, ffn_weight_2, ffn_bias_2, mask, mask_type);
}

std::tuple<at::Tensor, at::Tensor> multi_head_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                                        std::int64_t embed_dim, std::int64_t num_head, const at::Tensor& qkv_weight,
                                                        const at::Tensor& qkv_bias, const at::Tensor& proj_weight,
                                                        const at::Tensor& proj_bias, const std::optional<at::Tensor>& mask,
                                                        bool need_weights, bool average_attn_weights,
                                                        std::optional<std::int64_t> mask_type) {
  const Versions known({&qkv_weight, &proj_weight});
  return at::cpu::_native_multi_head_attention(query, key, value, embed_dim, num_head, qkv_weight, qkv_bias, proj_weight, proj_bias, mask,
                                               need_weights, average_attn_weights, mask_type);
}

}  // namespace

std::optional<std::int64_t> version_in_fast_path(const void* storage) noexcept { return Versions::of(storage); }

void register_fast_paths() {
  if (has_stock_kernel("_transformer_encoder_layer_fwd", "")) {
    cpu_library().impl("_transformer_encoder_layer_fwd", TORCH_FN(transformer_encoder_layer));
  }
  if (has_stock_kernel("_native_multi_head_attention", "")) {
    cpu_library().impl("_native_multi_head_attention", TORCH_FN(multi_head_attention));
  }
}

}  // namespace ipexrun::preload
