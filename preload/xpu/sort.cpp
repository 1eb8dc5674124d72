// sort and topk, on devices whose items are lanes (sort.cl); on a CPU's they fall back, which is faster there.
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <bit>

#include "preload/xpu/operands.h"
#include "preload/xpu/operators.h"

namespace ipexrun::preload::xpu {
namespace {

using at::Tensor;

constexpr std::int64_t kBlock = 1024;  // BLOCK of sort.cl
constexpr std::int64_t kSortLanes = 256;
constexpr std::size_t kLocalBytes = kBlock * 16;

/// Rows of `in` along `dim` in order: [rows, at least n], which and where.
struct Ordered {
  Tensor values, places;
};

bool takes(const Tensor& self) {
  if (!plain(self) || self.numel() == 0 || self.dim() == 0 || kernel_type(self.scalar_type()) == nullptr) return false;
  const auto& facts = unit_of(self).device->facts();
  return facts.lanes && facts.max_work_group >= kSortLanes && facts.local_bytes >= kLocalBytes &&
         (at::isIntegralType(self.scalar_type(), true) || is_real(self));
}

Ordered in_order(const Tensor& in, std::int64_t n, bool descending) {
  ::ipexrun::xpu::Device& device = *unit_of(in).device;
  const std::int64_t rows = in.numel() / n, length = std::max<std::int64_t>(2, std::bit_ceil(static_cast<std::uint64_t>(n))),
                     size = std::min(length, kBlock), blocks = length / size;
  const Ordered out{at::empty({rows, length}, in.options()), at::empty({rows, length}, in.options().dtype(at::kLong))};
  const char* exact = at::isIntegralType(in.scalar_type(), true) ? "long" : wide(in) ? "double" : "float";
  const std::string options =
      std::string("-DT=") + kernel_type(in.scalar_type()) + " -DX=" + exact + " -DLANES=" + std::to_string(kSortLanes);
  const std::array<std::size_t, 3> groups{static_cast<std::size_t>(rows * blocks * kSortLanes), 1, 1},
      group{static_cast<std::size_t>(kSortLanes), 1, 1};
  const Argument block = Argument::value(static_cast<std::int32_t>(size));
  const StreamId stream = stream_of(in);
  device.launch(device.kernel("sort", options, "sort_blocks"),
                std::vector<Argument>{write(out.values), write(out.places), read(in), count(n), count(blocks), block, flag(descending)},
                groups, group, stream);
  for (std::int64_t run = 2 * size; run <= length; run *= 2) {
    for (std::int64_t distance = run / 2; distance >= size; distance /= 2) {
      const std::int64_t pairs = rows * length / 2;
      device.launch(device.kernel("sort", options, "sort_step"),
                    std::vector<Argument>{write(out.values), write(out.places), count(pairs), count(length), count(run), count(distance),
                                          flag(descending)},
                    {static_cast<std::size_t>(pairs), 1, 1}, group, stream);
    }
    device.launch(device.kernel("sort", options, "sort_rest"),
                  std::vector<Argument>{write(out.values), write(out.places), count(run), count(blocks), block, flag(descending)}, groups,
                  group, stream);
  }
  return out;
}

/// The first k of each row along `dim`.
void take_first(const Tensor& self, std::int64_t dim, std::int64_t k, bool descending, const Tensor& values, const Tensor& places) {
  const Tensor in = self.movedim(dim, -1).contiguous();
  const Ordered ordered = in_order(in, in.size(-1), descending);
  std::vector<std::int64_t> sizes = in.sizes().vec();
  sizes.back() = k;
  const auto put = [&](const Tensor& to, const Tensor& from) {
    const Tensor few = from.narrow(1, 0, k).contiguous().view(sizes).movedim(-1, dim);
    to.resize_(few.sizes()).copy_(few);
  };
  put(values, ordered.values);
  put(places, ordered.places);
}

bool fit_results(const Tensor& self, const Tensor& values, const Tensor& places) {
  return plain(values) && plain(places) && values.scalar_type() == self.scalar_type() && places.scalar_type() == at::kLong;
}

/// (self, stable, dim, descending, values, indices)
bool sort(Given given, Results& results) {
  const Tensor self = given[0].toTensor(), values = given[4].toTensor(), places = given[5].toTensor();
  if (!takes(self) || !fit_results(self, values, places)) return false;
  const std::int64_t dim = at::maybe_wrap_dim(given[2].toInt(), self.dim());
  take_first(self, dim, self.size(dim), given[3].toBool(), values, places);
  results = {values, places};
  return true;
}

/// (self, k, dim, largest, sorted, values, indices)
bool topk(Given given, Results& results) {
  const Tensor self = given[0].toTensor(), values = given[5].toTensor(), places = given[6].toTensor();
  if (!takes(self) || !fit_results(self, values, places)) return false;
  const std::int64_t dim = at::maybe_wrap_dim(given[2].toInt(), self.dim()), k = given[1].toInt();
  if (k < 1 || k > self.size(dim)) return false;
  take_first(self, dim, k, given[3].toBool(), values, places);
  results = {values, places};
  return true;
}

}  // namespace

void register_sort() {
  static auto* aten = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::XPU, __FILE__, __LINE__);
  aten->impl("sort.values_stable", as_kernel<&sort>());
  aten->impl("topk.values", as_kernel<&topk>());
}

}  // namespace ipexrun::preload::xpu
