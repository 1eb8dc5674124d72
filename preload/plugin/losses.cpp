// A loss that is NaN or infinite, seen where the program looks at it: loss.item(), float(loss), `if loss.isnan()`, loss.isfinite(). Such
// programs often skip the backward pass of that step, whose first gradients would show it otherwise (training_guard.h). Nothing is computed
// for it: the number that the program asks for is looked at, and only between a forward pass in bf16 and its backward pass.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_local_scalar_dense_cpu_dispatch.h>
#include <ATen/ops/_local_scalar_dense_ops.h>
#include <ATen/ops/eq_cpu_dispatch.h>
#include <ATen/ops/eq_ops.h>
#include <ATen/ops/ne_cpu_dispatch.h>
#include <ATen/ops/ne_ops.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <cmath>

#include "preload/plugin/dispatcher.h"
#include "preload/plugin/register.h"
#include "preload/plugin/tier_state.h"

namespace ipexrun::preload {
namespace {

bool may_be_loss(const at::Tensor& tensor) {
  return tier()->training.expects_loss() && tensor.numel() == 1 &&
         (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble);
}

/// A number outside autograd's graph may be anything, an upper bound of infinity too: of these only NaN counts.
void look(double value, bool recorded) {
  if (std::isnan(value) || (recorded && std::isinf(value))) tier()->training.saw_bad_loss();
}

double number_of(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat ? *tensor.const_data_ptr<float>() : *tensor.const_data_ptr<double>();
}

at::Scalar read_number(const at::Tensor& self) {
  if (may_be_loss(self) && (self.requires_grad() || c10::GradMode::is_enabled())) look(number_of(self), self.requires_grad());
  return at::cpu::_local_scalar_dense(self);
}

/// isnan(x) is x != x, isfinite(x) begins with x == x.
void look_at_itself(const at::Tensor& self, const at::Tensor& other) {
  if (self.is_same(other) && may_be_loss(self) && self.has_storage()) look(number_of(self), self.requires_grad());
}

at::Tensor equals(const at::Tensor& self, const at::Tensor& other) {
  look_at_itself(self, other);
  return at::cpu::eq(self, other);
}

at::Tensor differs(const at::Tensor& self, const at::Tensor& other) {
  look_at_itself(self, other);
  return at::cpu::ne(self, other);
}

}  // namespace

void register_losses() {
  const TierOptions& options = tier()->options;
  if (options.dtype == DtypePolicy::kFloat32) return;
  if (has_stock_kernel("_local_scalar_dense", "")) cpu_library().impl("_local_scalar_dense", TORCH_FN(read_number));
  if (has_stock_kernel("eq", "Tensor")) cpu_library().impl("eq.Tensor", TORCH_FN(equals));
  if (has_stock_kernel("ne", "Tensor")) cpu_library().impl("ne.Tensor", TORCH_FN(differs));
}

}  // namespace ipexrun::preload
