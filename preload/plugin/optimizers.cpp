#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_adagrad_cpu_dispatch.h>
#include <ATen/ops/_fused_adagrad_ops.h>
#include <ATen/ops/_fused_adam_cpu_dispatch.h>
#include <ATen/ops/_fused_adam_ops.h>
#include <ATen/ops/_fused_adamw_cpu_dispatch.h>
#include <ATen/ops/_fused_adamw_ops.h>
#include <ATen/ops/_fused_sgd_cpu_dispatch.h>
#include <ATen/ops/_fused_sgd_ops.h>
#include <torch/library.h>

#include "preload/plugin/dispatcher.h"
#include "preload/plugin/register.h"
#include "preload/plugin/tier_state.h"

// Not every torch has this overload; declared here, it is an incomplete type there, and offer() leaves it out.
namespace at::_ops {
struct _fused_adagrad__tensor_lr;
}

namespace ipexrun::preload {
namespace {

void drop_packs_of(at::TensorList weights) noexcept {
  for (const at::Tensor& weight : weights) {
    if (weight.defined() && weight.has_storage()) tier()->weights.drop_storage(weight.storage().unsafeGetStorageImpl());
  }
}

template <auto Stock>
struct Watched;

/// The stock kernel, then the packs of what it wrote (dropped after it: a pack made meanwhile would be as stale).
template <typename... Arguments, void (*Stock)(at::TensorList, Arguments...)>
struct Watched<Stock> {
  static void call(at::TensorList self, Arguments... arguments) {
    Stock(self, std::forward<Arguments>(arguments)...);
    drop_packs_of(self);
  }
};

#define IPEXRUN_WATCH(ops, function, name, overload)                                     \
  {                                                                                      \
    auto offer = []<typename Ops>(Ops*) {                                                \
      if constexpr (requires { typename Ops::schema; }) {                                \
        constexpr auto kKernel = static_cast<typename Ops::schema*>(&at::cpu::function); \
        if (has_stock_kernel(name, overload)) {                                          \
          constexpr const char* kFull = *(overload) == '\0' ? name : name "." overload;  \
          cpu_library().impl(kFull, &Watched<kKernel>::call);                            \
        }                                                                                \
      }                                                                                  \
    };                                                                                   \
    offer(static_cast<at::_ops::ops*>(nullptr));                                         \
  }

}  // namespace

void register_optimizers() {
  IPEXRUN_WATCH(_fused_sgd_, _fused_sgd_, "_fused_sgd_", "")
  IPEXRUN_WATCH(_fused_sgd__tensor_lr, _fused_sgd_, "_fused_sgd_", "tensor_lr")
  IPEXRUN_WATCH(_fused_adam_, _fused_adam_, "_fused_adam_", "")
  IPEXRUN_WATCH(_fused_adam__tensor_lr, _fused_adam_, "_fused_adam_", "tensor_lr")
  IPEXRUN_WATCH(_fused_adamw_, _fused_adamw_, "_fused_adamw_", "")
  IPEXRUN_WATCH(_fused_adamw__tensor_lr, _fused_adamw_, "_fused_adamw_", "tensor_lr")
  IPEXRUN_WATCH(_fused_adagrad_, _fused_adagrad_, "_fused_adagrad_", "")
  IPEXRUN_WATCH(_fused_adagrad__tensor_lr, _fused_adagrad_, "_fused_adagrad_", "tensor_lr")
}

}  // namespace ipexrun::preload
