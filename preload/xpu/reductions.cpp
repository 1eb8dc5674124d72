// Sums, means, norms, largest and smallest values, any and all, over any dimensions.
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "preload/xpu/operands.h"
#include "preload/xpu/operators.h"

namespace ipexrun::preload::xpu {
namespace {

using at::Tensor;

constexpr std::int64_t kLanes = 64;             // LANES of rows.cl for short rows
constexpr std::int64_t kLanesOfLongRows = 128;  // and for long ones, where items are lanes: measured on an H200

constexpr std::int64_t kColumnsOfAnItem = 64;  // COLUMNS_EACH of rows.cl, with vectors

struct Reduction {
  const char* name;    ///< of rows.cl
  std::string type;    ///< computing type
  std::string limits;  ///< -DLOWEST= -DHIGHEST= where the reduction asks for them
  double scale = 1;
};

/// Enough work items to fill a device, each with enough to do.
std::int64_t pieces_for(const Tensor& on, std::int64_t results, std::int64_t n, std::int64_t least) {
  const auto& facts = unit_of(on).device->facts();
  const std::int64_t items = facts.lanes ? std::max<std::int64_t>(65536, static_cast<std::int64_t>(facts.compute_units) * 2048) : 65536;
  return std::clamp<std::int64_t>(std::min(n / least, items / std::max<std::int64_t>(results, 1)), 1, facts.lanes ? 4096 : 256);
}
Argument scale_of(const Reduction& reduction) {
  if (reduction.type == "double") return Argument::value(reduction.scale);
  if (reduction.type == "float") return Argument::value(static_cast<float>(reduction.scale));
  if (reduction.type == "long") return Argument::value(std::int64_t{1});
  return Argument::value(std::uint8_t{1});
}
at::ScalarType tensor_type(const std::string& type) {
  return type == "double" ? at::kDouble : type == "float" ? at::kFloat : type == "long" ? at::kLong : at::kBool;
}

/// [blocks, n, columns] -> [blocks, columns], all contiguous.
void run(const Tensor& out, const Tensor& in, std::int64_t blocks, std::int64_t n, std::int64_t columns, const Reduction& reduction) {
  ::ipexrun::xpu::Device& device = *unit_of(out).device;
  const std::string common = " -DX=" + reduction.type + " -DREDUCTION=" + reduction.name + reduction.limits;
  const auto pass = [&](const Tensor& to, const Tensor& from, std::int64_t length, std::int64_t pieces, const char* flags) {
    const std::int64_t part = (length + pieces - 1) / pieces;
    const bool longer = columns == 1 && device.facts().lanes && part >= 8 * kLanesOfLongRows;
    const bool vectors =
        one_item_a_row(out) && at::isFloatingType(from.scalar_type()) && (reduction.type == "float" || reduction.type == "double");
    const auto lanes = static_cast<std::size_t>(vectors ? 1 : longer ? kLanesOfLongRows : kLanes);
    const std::int64_t across = vectors ? (columns + kColumnsOfAnItem - 1) / kColumnsOfAnItem : columns;
    const std::string options = std::string("-DT=") + kernel_type(from.scalar_type()) + " -DOUT=" + kernel_type(to.scalar_type()) + common +
                                flags + (longer ? " -DLANES=128" : "");
    if (columns == 1) {
      device.launch(device.kernel("rows", options, "row_reduce"),
                    std::vector<Argument>{write(to), read(from), count(length), count(part), count(pieces), scale_of(reduction)},
                    {static_cast<std::size_t>(blocks * pieces) * lanes, 1, 1}, {lanes, 1, 1}, stream_of(out));
    } else {
      device.launch(
          device.kernel("rows", options, "column_reduce"),
          std::vector<Argument>{write(to), read(from), count(length), count(columns), count(part), count(pieces), scale_of(reduction)},
          {static_cast<std::size_t>(across), static_cast<std::size_t>(blocks * pieces), 1}, {lanes, 1, 1}, stream_of(out));
    }
  };
  const std::int64_t pieces = columns == 1 ? pieces_for(out, blocks * kLanes, n, 16 * kLanes) : pieces_for(out, blocks * columns, n, 32);
  if (pieces == 1) return pass(out, in, n, 1, "");
  const Tensor partial = at::empty({blocks, pieces, columns}, out.options().dtype(tensor_type(reduction.type)));
  pass(partial, in, n, pieces, " -DPARTIAL");
  pass(out, partial, pieces, 1, " -DAGAIN");
}

/// False: nothing was done. No dims: all.
bool reduce(const Tensor& self, std::vector<std::int64_t> dims, bool keep, const Tensor& out, Reduction reduction, bool mean = false) {
  if (self.numel() == 0) return false;
  std::vector<bool> reduced(static_cast<std::size_t>(self.dim()), dims.empty());
  if (self.dim() == 0) dims.clear();
  for (const std::int64_t dim : dims) reduced[static_cast<std::size_t>(at::maybe_wrap_dim(dim, self.dim()))] = true;
  std::vector<std::int64_t> kept, gone, result;
  std::int64_t n = 1;
  for (std::int64_t d = 0; d < self.dim(); ++d) {
    const bool goes = reduced[static_cast<std::size_t>(d)];
    (goes ? gone : kept).push_back(d);
    if (goes) n *= self.size(d);
    if (!goes || keep) result.push_back(goes ? 1 : self.size(d));
  }
  if (mean) reduction.scale = 1.0 / static_cast<double>(n);
  if (out.sizes() != at::IntArrayRef(result)) out.resize_(result);
  const Tensor target = out.is_contiguous() ? out : at::empty(result, out.options());
  // Dimensions that lie side by side are reduced where they lie; others are brought to the end.
  const bool together = !gone.empty() && gone.back() - gone.front() + 1 == static_cast<std::int64_t>(gone.size());
  if (self.is_contiguous() && together) {
    const std::int64_t blocks = c10::multiply_integers(self.sizes().slice(0, static_cast<std::size_t>(gone.front())));
    run(target, self, blocks, n, self.numel() / n / blocks, reduction);
  } else {
    std::vector<std::int64_t> order = kept;
    order.insert(order.end(), gone.begin(), gone.end());
    run(target, self.permute(order).contiguous(), self.numel() / n, n, 1, reduction);
  }
  if (!target.is_same(out)) out.copy_(target);
  return true;
}

std::vector<std::int64_t> dims_of(const c10::IValue& value) {
  return value.isNone() ? std::vector<std::int64_t>() : value.isInt() ? std::vector<std::int64_t>{value.toInt()} : value.toIntVector();
}
const char* real_sum(const Tensor& out) { return wide(out) ? "double" : "float"; }

/// (self, dim, keepdim, dtype, out)
bool add_up(Given given, bool mean) {
  const Tensor self = given[0].toTensor(), out = given[4].toTensor();
  if (!plain(self) || kernel_type(self.scalar_type()) == nullptr) return false;
  const bool integers = at::isIntegralType(self.scalar_type(), true);
  if (integers ? mean || !plain(out) || out.scalar_type() != at::kLong : !is_real(out) || (wide(self) && !wide(out))) return false;
  return reduce(self, dims_of(given[1]), given[2].toBool(), out, {"sum", integers ? "long" : real_sum(out), "", 1}, mean);
}
bool sum(Given given, Results& results) {
  results = {given[4]};
  return add_up(given, false);
}
bool mean(Given given, Results& results) {
  results = {given[4]};
  return add_up(given, true);
}

/// (self, ord, dim, keepdim, dtype, out)
bool vector_norm(Given given, Results& results) {
  const Tensor self = given[0].toTensor(), out = given[5].toTensor();
  if (!is_real(self) || !is_real(out) || given[1].toScalar().isComplex() || given[1].toScalar().to<double>() != 2 ||
      wide(self) != wide(out))
    return false;
  results = {out};
  return reduce(self, dims_of(given[2]), given[3].toBool(), out, {"norm", real_sum(out), "", 1});
}

bool extreme(const Tensor& self, std::vector<std::int64_t> dims, bool keep, const Tensor& out, bool largest) {
  if (!plain(self) || !plain(out) || out.scalar_type() != self.scalar_type()) return false;
  const bool real = is_real(self);
  if (!real && self.scalar_type() != at::kLong && self.scalar_type() != at::kInt) return false;
  const std::string limits = real ? " -DLOWEST=-INFINITY -DHIGHEST=INFINITY" : " -DLOWEST=LONG_MIN -DHIGHEST=LONG_MAX";
  return reduce(self, std::move(dims), keep, out, {largest ? "largest" : "smallest", real ? real_sum(out) : "long", limits, 1});
}
/// (self, dim, keepdim, out)
bool largest(Given given, Results& results) {
  results = {given[3]};
  return extreme(given[0].toTensor(), dims_of(given[1]), given[2].toBool(), given[3].toTensor(), true);
}
bool smallest(Given given, Results& results) {
  results = {given[3]};
  return extreme(given[0].toTensor(), dims_of(given[1]), given[2].toBool(), given[3].toTensor(), false);
}
/// (self)
bool whole_extreme(Given given, Results& results, bool largest) {
  const Tensor self = given[0].toTensor();
  if (!plain(self)) return false;
  const Tensor out = at::empty({}, self.options());
  results = {out};
  return extreme(self, {}, false, out, largest);
}
bool whole_largest(Given given, Results& results) { return whole_extreme(given, results, true); }
bool whole_smallest(Given given, Results& results) { return whole_extreme(given, results, false); }

/// As bool: any is the largest, all the smallest.
bool truth(const Tensor& self, std::vector<std::int64_t> dims, bool keep, const Tensor& out, bool any) {
  if (!plain(self) || !plain(out) || kernel_type(self.scalar_type()) == nullptr || out.scalar_type() != at::kBool) return false;
  if (self.scalar_type() == at::kDouble && !is_real(self)) return false;
  return reduce(self, std::move(dims), keep, out, {any ? "largest" : "smallest", "bool", " -DLOWEST=0 -DHIGHEST=1", 1});
}
template <bool kAny>
bool truth_along(Given given, Results& results) {
  results = {given[3]};
  return truth(given[0].toTensor(), dims_of(given[1]), given[2].toBool(), given[3].toTensor(), kAny);
}
template <bool kAny>
bool truth_of_all(Given given, Results& results) {
  results = {given[1]};
  return truth(given[0].toTensor(), {}, false, given[1].toTensor(), kAny);
}

}  // namespace

void register_reductions() {
  static auto* aten = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::XPU, __FILE__, __LINE__);
  aten->impl("sum.IntList_out", as_kernel<&sum>());
  aten->impl("mean.out", as_kernel<&mean>());
  aten->impl("linalg_vector_norm.out", as_kernel<&vector_norm>());
  aten->impl("amax.out", as_kernel<&largest>());
  aten->impl("amin.out", as_kernel<&smallest>());
  aten->impl("max", as_kernel<&whole_largest>());
  aten->impl("min", as_kernel<&whole_smallest>());
  aten->impl("any.out", as_kernel<&truth_along<true>>());
  aten->impl("all.out", as_kernel<&truth_along<false>>());
  aten->impl("any.all_out", as_kernel<&truth_of_all<true>>());
  aten->impl("all.all_out", as_kernel<&truth_of_all<false>>());
}

}  // namespace ipexrun::preload::xpu
