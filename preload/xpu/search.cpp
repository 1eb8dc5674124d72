// argmax, argmin, max and min along a dimension with their places, cumsum.
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "preload/xpu/operands.h"
#include "preload/xpu/operators.h"

namespace ipexrun::preload::xpu {
namespace {

using at::Tensor;

constexpr std::int64_t kPiece = 8192;  ///< elements of a row for a work group, where rows are few (assumed)

/// What elements are compared and added in; nullptr: kernels do not know the type.
const char* exact_type(const Tensor& tensor) {
  if (is_real(tensor)) return wide(tensor) ? "double" : "float";
  if (!plain(tensor) || kernel_type(tensor.scalar_type()) == nullptr || !at::isIntegralType(tensor.scalar_type(), true)) return nullptr;
  return "long";
}

void launch_rows(const Tensor& in, const std::string& options, const char* name, const std::vector<Argument>& arguments,
                 std::int64_t groups, std::int64_t n) {
  const auto lanes = static_cast<std::size_t>(lanes_for(in, n));
  unit_of(in).device->launch(unit_of(in).device->kernel("search", options + lanes_option(in, n), name), arguments,
                             {static_cast<std::size_t>(groups) * lanes, 1, 1}, {lanes, 1, 1}, stream_of(in));
}

/// The first best element of each row of `in`, contiguous [rows, n]: where, and its value.
void find_best(const Tensor& in, std::int64_t n, bool largest, const Tensor& which, const Tensor& values) {
  const std::string type = kernel_type(in.scalar_type());
  const std::string options = "-DT=" + type + " -DX=" + exact_type(in) + (largest ? " -DBEST=1" : " -DBEST=-1");
  const std::int64_t rows = in.numel() / n;
  const auto units = static_cast<std::int64_t>(unit_of(in).device->facts().compute_units);
  const std::int64_t pieces = rows < 2 * units && n >= 2 * kPiece ? std::min<std::int64_t>((n + kPiece - 1) / kPiece, 4096) : 1;
  const std::int64_t each = (n + pieces - 1) / pieces;
  if (pieces == 1)
    return launch_rows(in, options, "best", {write(which), write(values), read(in), read(in), count(n), count(n), count(1)}, rows, n);
  const Tensor some = at::empty({rows, pieces}, which.options()), of_some = at::empty({rows, pieces}, in.options());
  launch_rows(in, options, "best", {write(some), write(of_some), read(in), read(in), count(n), count(each), count(pieces)}, rows * pieces,
              each);
  launch_rows(in, options + " -DAGAIN", "best",
              {write(which), write(values), read(of_some), read(some), count(pieces), count(pieces), count(1)}, rows, pieces);
}

std::vector<std::int64_t> without(at::IntArrayRef sizes, std::int64_t dim, bool keep) {
  std::vector<std::int64_t> out = sizes.vec();
  if (keep)
    out[static_cast<std::size_t>(dim)] = 1;
  else
    out.erase(out.begin() + dim);
  return out;
}

/// Along a dimension, or over all without one. `values` may be undefined. False: nothing was done.
bool best_along(const Tensor& self, std::optional<std::int64_t> given_dim, bool keep, bool largest, const Tensor& which,
                const Tensor& values) {
  if (exact_type(self) == nullptr || !plain(which) || which.scalar_type() != at::kLong || self.numel() == 0) return false;
  if (values.defined() && (!plain(values) || values.scalar_type() != self.scalar_type())) return false;
  std::vector<std::int64_t> sizes;
  Tensor in;
  if (given_dim.has_value() && self.dim() > 0) {
    const std::int64_t dim = at::maybe_wrap_dim(*given_dim, self.dim());
    sizes = without(self.sizes(), dim, keep);
    in = self.movedim(dim, -1).contiguous();
  } else {
    sizes.assign(keep ? static_cast<std::size_t>(self.dim()) : 0, 1);
    in = self.contiguous().view({-1});
  }
  const Tensor places = at::empty(sizes, which.options()), found = at::empty(sizes, self.options());
  find_best(in, in.size(-1), largest, places, found);
  which.resize_(sizes).copy_(places);
  if (values.defined()) values.resize_(sizes).copy_(found);
  return true;
}

/// (self, dim, keepdim, out)
template <bool kLargest>
bool place_of_best(Given given, Results& results) {
  results = {given[3]};
  return best_along(given[0].toTensor(), given[1].isNone() ? std::nullopt : std::optional(given[1].toInt()), given[2].toBool(), kLargest,
                    given[3].toTensor(), Tensor());
}
/// (self, dim, keepdim, values, indices)
template <bool kLargest>
bool best_and_place(Given given, Results& results) {
  results = {given[3], given[4]};
  return best_along(given[0].toTensor(), given[1].toInt(), given[2].toBool(), kLargest, given[4].toTensor(), given[3].toTensor());
}

/// (self, dim, dtype, out)
bool running_sum(Given given, Results& results) {
  const Tensor self = given[0].toTensor(), out = given[3].toTensor();
  results = {out};
  const char* type = plain(out) ? exact_type(out) : nullptr;
  if (type == nullptr || exact_type(self) == nullptr || self.numel() == 0 || self.dim() == 0 || out.scalar_type() == at::kBool)
    return false;
  const bool integers = std::string_view(type) == "long";
  if (integers != at::isIntegralType(self.scalar_type(), true) || (wide(self) && !wide(out))) return false;
  const std::int64_t dim = at::maybe_wrap_dim(given[1].toInt(), self.dim());
  const Tensor in = self.movedim(dim, -1).contiguous(), sums = at::empty(in.sizes(), out.options());
  const std::int64_t n = in.size(-1);
  launch_rows(in, std::string("-DT=") + kernel_type(self.scalar_type()) + " -DX=" + type + " -DOUT=" + kernel_type(out.scalar_type()),
              "running_sum", {write(sums), read(in), count(n)}, in.numel() / n, n);
  out.resize_(self.sizes()).copy_(sums.movedim(-1, dim));
  return true;
}

}  // namespace

void register_search() {
  static auto* aten = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::XPU, __FILE__, __LINE__);
  aten->impl("argmax.out", as_kernel<&place_of_best<true>>());
  aten->impl("argmin.out", as_kernel<&place_of_best<false>>());
  aten->impl("max.dim_max", as_kernel<&best_and_place<true>>());
  aten->impl("min.dim_min", as_kernel<&best_and_place<false>>());
  aten->impl("cumsum.out", as_kernel<&running_sum>());
}

}  // namespace ipexrun::preload::xpu
