// The gradients of a group norm whose images lie channels last: torch's kernel ends the process where the images want none (seen in 2.13:
// it writes into a tensor that is not there), as behind a layer whose weights do not change. Captured steps lay images so, under
// programs that never do. There the images' gradient is computed as well, and dropped.
#include <ATen/core/Tensor.h>
#include <ATen/ops/native_group_norm_backward_cpu_dispatch.h>
#include <torch/library.h>

#include <array>
#include <cstdint>
#include <optional>
#include <tuple>

#include "preload/plugin/dispatcher.h"
#include "preload/plugin/register.h"

namespace ipexrun::preload {
namespace {

using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

Gradients native_group_norm_backward(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& mean, const at::Tensor& rstd,
                                     const std::optional<at::Tensor>& weight, std::int64_t n, std::int64_t c, std::int64_t hxw,
                                     std::int64_t group, std::array<bool, 3> mask) {
  const bool lacks_images = !mask[0] && !input.is_contiguous();
  if (lacks_images) mask[0] = true;
  Gradients found = at::cpu::native_group_norm_backward(grad, input, mean, rstd, weight, n, c, hxw, group, mask);
  if (lacks_images) std::get<0>(found) = at::Tensor();
  return found;
}

}  // namespace

void register_group_norms() {
  if (!has_stock_kernel("native_group_norm_backward", "")) return;
  cpu_library().impl("native_group_norm_backward", TORCH_FN(native_group_norm_backward));
}

}  // namespace ipexrun::preload
