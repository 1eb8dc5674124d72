// A loss that is NaN or infinite, seen where the program looks at it: loss.item(), float(loss), `if loss.isnan()`, loss.isfinite(). Such
// programs often skip the backward pass of that step, whose first gradients would show it otherwise (training_guard.h). Nothing is computed
// for it: the number that the program asks for is looked at, and only between a forward pass in bf16 and its backward pass.
//
// And ratios of probabilities (losses.h), seen where exp() is asked for.
#include "preload/plugin/losses.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/_local_scalar_dense_cpu_dispatch.h>
#include <ATen/ops/_local_scalar_dense_ops.h>
#include <ATen/ops/eq_cpu_dispatch.h>
#include <ATen/ops/eq_ops.h>
#include <ATen/ops/exp_cpu_dispatch.h>
#include <ATen/ops/exp_ops.h>
#include <ATen/ops/ne_cpu_dispatch.h>
#include <ATen/ops/ne_ops.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>

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

std::atomic<bool> ratios{false};
std::atomic<int> looks_left{1 << 12};  // at what is not one: programs whose losses have other differences behind exp()

constexpr std::int64_t kMostOfARatio = 1 << 20;  ///< elements that are looked at: a number for each step of an episode or token of a text
constexpr double kFirstRatio = 0.25;             ///< a first ratio lies within exp() of it, rounded or not; later ones are clipped near it

/// A difference of something recorded and something that is not.
bool is_of_two_calls(const at::Tensor& self) {
  const auto& made = self.grad_fn();
  if (made == nullptr || made->name() != "SubBackward0" || made->num_outputs() != 2) return false;
  return made->next_edge(0).is_valid() != made->next_edge(1).is_valid();
}

/// Near zero on both sides of it, or nothing else; x - x.max(), which makes exp() safe, is on one.
template <typename T>
bool are_first_ratios(const at::Tensor& self) {
  const T* first = self.const_data_ptr<T>();
  const auto [least, most] = std::minmax_element(first, first + self.numel());
  return *least >= -kFirstRatio && *most <= kFirstRatio && (*least < 0) == (*most > 0);
}

void look_for_ratio(const at::Tensor& self) {
  if (!c10::GradMode::is_enabled() || !self.requires_grad() || ratios.load(std::memory_order_relaxed)) return;
  if (self.numel() == 0 || self.numel() > kMostOfARatio || !self.is_contiguous() || !is_of_two_calls(self)) return;
  if (looks_left.fetch_sub(1, std::memory_order_relaxed) <= 0) {
    looks_left.store(0, std::memory_order_relaxed);
    return;
  }
  if (self.scalar_type() == at::kFloat ? !are_first_ratios<float>(self)
                                       : self.scalar_type() != at::kDouble || !are_first_ratios<double>(self))
    return;
  ratios.store(true, std::memory_order_relaxed);
  tier()->training.needs_exact("recorded results are divided by unrecorded ones, as PPO does");
}

at::Tensor exponential(const at::Tensor& self) {
  look_for_ratio(self);
  return at::cpu::exp(self);
}

}  // namespace

bool takes_ratios() noexcept { return ratios.load(std::memory_order_relaxed); }

void register_losses() {
  const TierOptions& options = tier()->options;
  if (options.dtype == DtypePolicy::kFloat32) return;
  if (has_stock_kernel("_local_scalar_dense", "")) cpu_library().impl("_local_scalar_dense", TORCH_FN(read_number));
  if (has_stock_kernel("eq", "Tensor")) cpu_library().impl("eq.Tensor", TORCH_FN(equals));
  if (has_stock_kernel("ne", "Tensor")) cpu_library().impl("ne.Tensor", TORCH_FN(differs));
  if (options.dtype == DtypePolicy::kAuto && has_stock_kernel("exp", "")) cpu_library().impl("exp", TORCH_FN(exponential));
}

}  // namespace ipexrun::preload
