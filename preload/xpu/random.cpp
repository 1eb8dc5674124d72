// Dropout, with random numbers made on the device: docs/decisions/0024-dropout-on-xpu.md. All other draws are the CPU's.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <cmath>
#include <mutex>

#include "preload/xpu/backend.h"
#include "preload/xpu/operands.h"
#include "preload/xpu/operators.h"

namespace ipexrun::preload::xpu {
namespace {

using at::Tensor;

std::uint64_t next_key(const Tensor& on) {
  at::Generator generator = default_generator(on.device().index());
  const std::lock_guard lock(generator.mutex());
  return static_cast<at::CPUGeneratorImpl*>(generator.unsafeGetGeneratorImpl())->random64();
}

/// (input, p, train) -> out, mask
bool dropout(Given given, Results& results) {
  const Tensor input = given[0].toTensor();
  const double p = given[1].toDouble();
  if (!is_real(input) || (!given[2].isNone() && !given[2].toBool()) || !(p >= 0 && p < 1)) return false;
  const Tensor in = input.contiguous(), out = at::empty(in.sizes(), in.options()),
               mask = at::empty(in.sizes(), in.options().dtype(at::kBool));
  results = {out, mask};
  if (in.numel() == 0) return true;
  const auto kept = static_cast<std::uint64_t>(std::llround((1 - p) * 4294967296.0));
  launch_linear(
      in, unit_of(in).device->kernel("random", real_options(in), "dropout"),
      {write(out), write(mask), read(in), Argument::value(next_key(in)), Argument::value(kept), number(in, 1 / (1 - p)), count(in.numel())},
      (in.numel() + 3) / 4);
  return true;
}
/// (grad, mask, scale)
bool dropout_backward(Given given, Results& results) {
  const Tensor grad = given[0].toTensor(), mask = given[1].toTensor();
  if (!is_real(grad) || !plain(mask) || mask.scalar_type() != at::kBool || mask.sizes() != grad.sizes()) return false;
  const Tensor from = grad.contiguous(), kept = mask.contiguous(), out = at::empty(from.sizes(), from.options());
  if (from.numel() > 0) {
    launch_linear(from, unit_of(from).device->kernel("random", real_options(from), "dropout_backward"),
                  {write(out), read(from), read(kept), number(from, given[2].toScalar().to<double>()), count(from.numel())}, from.numel());
  }
  results = {out};
  return true;
}

}  // namespace

void register_random() {
  static auto* aten = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::XPU, __FILE__, __LINE__);
  aten->impl("native_dropout", as_kernel<&dropout>());
  aten->impl("native_dropout_backward", as_kernel<&dropout_backward>());
}

}  // namespace ipexrun::preload::xpu
