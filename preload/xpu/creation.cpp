// Tensors made of a rule or of other tensors: arange, tril and triu, cat.
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/empty.h>

#include <cmath>

#include "preload/xpu/operands.h"
#include "preload/xpu/operators.h"

namespace ipexrun::preload::xpu {
namespace {

using at::Tensor;

/// (start, end, step, out)
bool arange(Given given, Results& results) {
  const at::Scalar start = given[0].toScalar(), end = given[1].toScalar(), step = given[2].toScalar();
  const Tensor out = given[3].toTensor();
  if (!plain(out) || kernel_type(out.scalar_type()) == nullptr || out.scalar_type() == at::kBool) return false;
  if (start.isComplex() || end.isComplex() || step.isComplex()) return false;
  const bool real = at::isFloatingType(out.scalar_type());
  const bool has_double = unit_of(out).device->facts().has_fp64;
  if (out.scalar_type() == at::kDouble && !has_double) return false;
  if (!real && (start.isFloatingPoint() || end.isFloatingPoint() || step.isFloatingPoint())) return false;
  double length = 0;
  if (real) {
    length = std::ceil((end.to<double>() - start.to<double>()) / step.to<double>());
  } else {
    const std::int64_t by = step.to<std::int64_t>();
    if (by == 0) return false;
    length = std::ceil(static_cast<double>(end.to<std::int64_t>() - start.to<std::int64_t>()) / static_cast<double>(by));
  }
  if (!(length >= 0) || length > 1e15) return false;  // the CPU's words for it
  const auto n = static_cast<std::int64_t>(length);
  if (out.numel() != n) out.resize_({n});
  const Tensor to = out.is_contiguous() ? out : at::empty({n}, out.options());
  const std::string options = std::string("-DT=") + kernel_type(out.scalar_type()) + " -DX=" +
                              (!real        ? "long"
                               : has_double ? "double"
                                            : "float");
  const auto value = [&](const at::Scalar& scalar) {
    if (!real) return Argument::value(scalar.to<std::int64_t>());
    return has_double ? Argument::value(scalar.to<double>()) : Argument::value(static_cast<float>(scalar.to<double>()));
  };
  if (n > 0)
    launch_linear(to, unit_of(to).device->kernel("creation", options, "sequence"), {write(to), value(start), value(step), count(n)}, n);
  if (!to.is_same(out)) out.copy_(to.view(out.sizes()));
  results = {out};
  return true;
}

/// (self, diagonal, out)
bool triangle(Given given, Results& results, bool lower) {
  const Tensor self = given[0].toTensor(), out = given[2].toTensor();
  if (!plain(self) || !plain(out) || self.dim() < 2 || out.scalar_type() != self.scalar_type() || raw_type(self.element_size()) == nullptr)
    return false;
  if (out.sizes() != self.sizes()) out.resize_(self.sizes());
  results = {out};
  if (self.numel() == 0) return true;
  const Tensor in = self.contiguous(), to = out.is_contiguous() ? out : at::empty(self.sizes(), self.options());
  launch_linear(to, unit_of(to).device->kernel("creation", std::string("-DRAW=") + raw_type(to.element_size()), "triangle"),
                {write(to), read(in), count(self.size(-2)), count(self.size(-1)), given[1].isInt() ? count(given[1].toInt()) : count(0),
                 flag(lower), count(to.numel())},
                to.numel());
  if (!to.is_same(out)) out.copy_(to);
  return true;
}
bool tril(Given given, Results& results) { return triangle(given, results, true); }
bool triu(Given given, Results& results) { return triangle(given, results, false); }

/// (tensors, dim, out)
bool cat(Given given, Results& results) {
  std::vector<Tensor> parts;
  const Tensor out = given[2].toTensor();
  for (const Tensor& part : given[0].toTensorVector()) {
    if (!plain(part) || part.device() != out.device()) return false;
    if (part.dim() == 1 && part.numel() == 0) continue;  // takes part in no check, as in torch
    if (part.is_same(out)) return false;
    parts.push_back(part);
  }
  if (parts.empty() || !plain(out) || parts[0].dim() == 0) return false;
  const std::int64_t dims = parts[0].dim(), dim = at::maybe_wrap_dim(given[1].toInt(), dims);
  std::vector<std::int64_t> sizes = parts[0].sizes().vec();
  sizes[static_cast<std::size_t>(dim)] = 0;
  for (const Tensor& part : parts) {
    if (part.dim() != dims) return false;
    for (std::int64_t d = 0; d < dims; ++d)
      if (d != dim && part.size(d) != parts[0].size(d)) return false;
    sizes[static_cast<std::size_t>(dim)] += part.size(dim);
  }
  if (out.sizes() != at::IntArrayRef(sizes)) out.resize_(sizes);
  std::int64_t at = 0;
  for (const Tensor& part : parts) {
    if (part.numel() > 0) out.narrow(dim, at, part.size(dim)).copy_(part);
    at += part.size(dim);
  }
  results = {out};
  return true;
}

}  // namespace

void register_creation() {
  static auto* aten = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::XPU, __FILE__, __LINE__);
  aten->impl("arange.start_out", as_kernel<&arange>());
  aten->impl("tril.out", as_kernel<&tril>());
  aten->impl("triu.out", as_kernel<&triu>());
  aten->impl("cat.out", as_kernel<&cat>());
}

}  // namespace ipexrun::preload::xpu
