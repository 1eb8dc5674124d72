// Embedding, index_select, x[i], x[i] = y, index_add, gather, scatter, scatter_add.
#include <ATen/WrapDimUtils.h>
#include <ATen/native/IndexingUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "preload/xpu/index_check.h"
#include "preload/xpu/index_rows.h"
#include "preload/xpu/operators.h"

namespace ipexrun::preload::xpu {
namespace {

using at::Tensor;

bool moves(const Tensor& tensor) { return plain(tensor) && raw_type(tensor.element_size()) != nullptr; }
std::int64_t product(at::IntArrayRef sizes) { return c10::multiply_integers(sizes); }

/// `self` seen along `dim`.
RowsOf rows_along(const Tensor& self, std::int64_t dim) {
  const auto d = static_cast<std::size_t>(dim);
  return {product(self.sizes().slice(0, d)), self.size(dim), product(self.sizes().slice(d + 1))};
}

/// (self, dim, index)
bool index_select(Given given, Results& results) {
  const Tensor self = given[0].toTensor(), index = given[2].toTensor();
  if (!moves(self) || !is_index(index) || self.dim() == 0 || index.dim() > 1 || index.numel() == 0) return false;
  const std::int64_t dim = at::maybe_wrap_dim(given[1].toInt(), self.dim());
  std::vector<std::int64_t> sizes = self.sizes().vec();
  sizes[static_cast<std::size_t>(dim)] = index.numel();
  const Tensor out = at::empty(sizes, self.options());
  select_rows(out, self.contiguous(), as_index(index), rows_along(self, dim));
  results = {out};
  return true;
}

/// (grad, indices, num_weights, padding_idx, scale_grad_by_freq)
bool embedding_backward(Given given, Results& results) {
  const Tensor grad = given[0].toTensor(), indices = given[1].toTensor();
  if (!is_real(grad) || !is_index(indices) || given[4].toBool() || grad.dim() == 0) return false;
  const std::int64_t width = grad.size(-1), size = given[2].toInt();
  // Several gradients of one row add up in the type of sums: halves are rounded once.
  const Tensor out = at::zeros({size, width}, grad.options());
  add_rows(out, grad.contiguous(), as_index(indices), {1, size, width}, 1, given[3].toInt());
  results = {out};
  return true;
}

/// (self, dim, index, source, alpha, out)
bool index_add(Given given, Results& results) {
  const Tensor self = given[0].toTensor(), index = given[2].toTensor(), source = given[3].toTensor(), out = given[5].toTensor();
  if (!adds(self) || !adds(out) || !adds(source) || !is_index(index) || self.dim() == 0 || source.dim() != self.dim() || index.dim() > 1)
    return false;
  if (self.scalar_type() != out.scalar_type() || source.scalar_type() != self.scalar_type() || given[4].toScalar().isComplex())
    return false;
  if (!out.is_same(self)) {
    if (out.sizes() != self.sizes()) out.resize_(self.sizes());
    out.copy_(self);
  }
  const Tensor target = out.contiguous();
  add_rows(target, source.contiguous(), as_index(index), rows_along(self, at::maybe_wrap_dim(given[1].toInt(), self.dim())),
           given[4].toScalar().to<double>());
  if (!target.is_same(out)) out.copy_(target);
  results = {out};
  return true;
}

// ---- x[i, j, ...]

/// What x[i, :, j, ...] picks: `self` with the indexed dimensions side by side, seen as [outer, indexed, inner], and one index.
struct Pick {
  Tensor self;   ///< a view
  Tensor index;  ///< long, contiguous, flat
  RowsOf rows;
  std::vector<std::int64_t> sizes;  ///< of the result
};
bool pick(const Tensor& self, const c10::List<std::optional<Tensor>>& given, Pick& out) {
  for (const std::optional<Tensor>& one : given)
    if (one && one->defined() && (!plain(*one) || (!is_index(*one) && one->scalar_type() != at::kBool && one->scalar_type() != at::kByte)))
      return false;
  std::vector<Tensor> indices = at::native::expandTensors(self, at::IOptTensorListRef(given));
  indices = at::expand_outplace(indices);
  while (static_cast<std::int64_t>(indices.size()) < self.dim()) indices.emplace_back();
  Tensor view = self;
  if (!at::native::hasContiguousSubspace(indices)) std::tie(view, indices) = at::native::transposeToFront(view, indices);
  std::size_t first = 0, end = indices.size();
  while (first < end && !indices[first].defined()) ++first;
  while (end > first && !indices[end - 1].defined()) --end;
  if (first == end) return false;
  const at::IntArrayRef sizes = view.sizes();
  out.self = view;
  out.rows = {product(sizes.slice(0, first)), product(sizes.slice(first, end - first)), product(sizes.slice(end)), true};
  out.sizes = sizes.slice(0, first).vec();
  const at::IntArrayRef picked = indices[first].sizes();
  out.sizes.insert(out.sizes.end(), picked.begin(), picked.end());
  out.sizes.insert(out.sizes.end(), sizes.begin() + static_cast<std::ptrdiff_t>(end), sizes.end());
  out.index = as_index(indices[first]).view({-1});
  if (end - first == 1 || out.index.numel() == 0 || self.numel() == 0) return true;
  const std::int64_t n = out.index.numel();
  ::ipexrun::xpu::Device& device = *unit_of(self).device;
  Kernel& kernel = device.kernel("index", std::string("-DRAW=uint") + index_option(n), "join_index");
  const Tensor joined = at::zeros({n}, out.index.options());
  for (std::size_t k = first; k < end; ++k) {
    const Tensor one = as_index(indices[k]).view({-1});
    launch_linear(joined, kernel, {write(joined), read(one), index_mark(joined), count(sizes[k]), count(n)}, n);
  }
  out.index = joined;
  out.rows.from_end = false;
  return true;
}

/// (self, indices, out)
bool index_tensor(Given given, Results& results) {
  const Tensor self = given[0].toTensor(), out = given[2].toTensor();
  if (!moves(self) || !plain(out) || out.scalar_type() != self.scalar_type() || self.numel() == 0) return false;
  Pick one;
  if (!pick(self, given[1].toOptionalTensorList(), one)) return false;
  if (out.sizes() != at::IntArrayRef(one.sizes)) out.resize_(one.sizes);
  const Tensor target = out.is_contiguous() ? out : at::empty(one.sizes, out.options());
  select_rows(target, one.self.contiguous(), one.index, one.rows);
  if (!target.is_same(out)) out.copy_(target);
  results = {out};
  return true;
}

/// (self, indices, values, accumulate, unsafe)
bool index_put(Given given, Results& results) {
  const Tensor self = given[0].toTensor(), values = given[2].toTensor();
  const bool accumulate = given[3].toBool();
  if (!moves(self) || !plain(values) || values.scalar_type() != self.scalar_type() || (accumulate && !adds(self)) || self.numel() == 0)
    return false;
  const c10::List<std::optional<Tensor>> indices = given[1].toOptionalTensorList();
  results = {self};
  const std::optional<Tensor> mask = indices.size() == 1 ? std::optional<Tensor>(indices[0]) : std::nullopt;
  if (mask && mask->defined() && mask->scalar_type() == at::kBool && plain(*mask) && values.numel() == 1 && !accumulate &&
      mask->dim() <= self.dim() && mask->sizes() == self.sizes().slice(0, static_cast<std::size_t>(mask->dim()))) {
    Tensor wide = *mask;
    while (wide.dim() < self.dim()) wide = wide.unsqueeze(-1);
    self.masked_fill_(wide, values.reshape(at::IntArrayRef{}));
    return true;
  }
  Pick one;
  if (!pick(self, indices, one)) return false;
  const Tensor target = one.self.contiguous();  // a copy unless self is contiguous and indexed side by side
  const bool single = values.numel() == 1 && !accumulate;
  const Tensor from = single ? values.contiguous() : values.expand(one.sizes).contiguous();
  if (accumulate) {
    add_rows(target, from, one.index, one.rows);
  } else {
    put_rows(target, from, one.index, one.rows);
  }
  if (!target.is_same(one.self)) one.self.copy_(target);
  return true;
}

// ---- gather and scatter

/// `tensor` at the places of `index`, standing still along `dim`.
Tensor along(const Tensor& tensor, const Tensor& index, std::int64_t dim) {
  std::vector<std::int64_t> strides = tensor.strides().vec();
  strides[static_cast<std::size_t>(dim)] = 0;
  return tensor.as_strided(index.sizes(), strides);
}
bool covers(const Tensor& tensor, const Tensor& index, std::int64_t dim) {
  for (std::int64_t d = 0; d < tensor.dim(); ++d)
    if (d != dim && index.size(d) > tensor.size(d)) return false;
  return true;
}
at::TensorIterator iterate(const Tensor& first, const Tensor& second, const Tensor& index) {
  return at::TensorIteratorConfig()
      .set_check_mem_overlap(false)
      .check_all_same_dtype(false)
      .resize_outputs(false)
      .add_output(first)
      .add_const_input(second)
      .add_const_input(index)
      .build();
}
bool launch_along(const char* name, const Tensor& moved, const at::TensorIterator& iterator, const Tensor& self, std::int64_t dim) {
  Grid grid;
  if (!make_grid(iterator, grid)) return false;
  Kernel& kernel = unit_of(self).device->kernel("index", std::string("-DINDEX=ulong -DRAW=") + raw_type(moved.element_size()), name);
  launch_grid(self, kernel,
              {Argument::memory(iterator.data_ptr(0)), Argument::memory(iterator.data_ptr(1)), Argument::memory(iterator.data_ptr(2)),
               index_mark(self), count(self.size(dim)), count(self.stride(dim) * static_cast<std::int64_t>(self.element_size())),
               Argument::value(grid)},
              grid);
  return true;
}

/// (self, dim, index, sparse_grad, out)
bool gather(Given given, Results& results) {
  const Tensor self = given[0].toTensor(), out = given[4].toTensor();
  const Tensor index = given[2].toTensor();
  if (!moves(self) || !is_index(index) || !plain(out) || out.scalar_type() != self.scalar_type() || self.dim() == 0 ||
      index.dim() != self.dim())
    return false;
  const std::int64_t dim = at::maybe_wrap_dim(given[1].toInt(), self.dim());
  if (!covers(self, index, dim) || self.numel() == 0) return false;
  if (out.sizes() != index.sizes()) out.resize_(index.sizes());
  results = {out};
  if (index.numel() == 0) return true;
  return launch_along("gather", self, iterate(out, along(self, index, dim), index.to(at::kLong)), self, dim);
}

/// What scatter writes into `out`: false where the call is not one for kernels. `out` then has the values of `self`.
bool scatter_checks(const Tensor& self, const Tensor& index, const Tensor& out, std::int64_t dim) {
  if (!moves(self) || !is_index(index) || !plain(out) || out.scalar_type() != self.scalar_type() || self.dim() == 0 ||
      index.dim() != self.dim() || !covers(self, index, dim))
    return false;
  if (!out.is_same(self)) {
    if (out.sizes() != self.sizes()) out.resize_(self.sizes());
    out.copy_(self);
  }
  return true;
}
/// (self, dim, index, src, out)
bool scatter(Given given, Results& results) {
  const Tensor self = given[0].toTensor(), index = given[2].toTensor(), source = given[3].toTensor(), out = given[4].toTensor();
  const std::int64_t dim = at::maybe_wrap_dim(given[1].toInt(), self.dim());
  if (!plain(source) || source.dim() != index.dim() || source.scalar_type() != self.scalar_type()) return false;
  for (std::int64_t d = 0; d < index.dim(); ++d)
    if (index.size(d) > source.size(d)) return false;
  if (!scatter_checks(self, index, out, dim)) return false;
  results = {out};
  if (index.numel() == 0) return true;
  return launch_along("scatter", out,
                      iterate(along(out, index, dim), source.as_strided(index.sizes(), source.strides()), index.to(at::kLong)), out, dim);
}
/// (self, dim, index, value, out)
bool scatter_value(Given given, Results& results) {
  const Tensor self = given[0].toTensor(), index = given[2].toTensor(), out = given[4].toTensor();
  const std::int64_t dim = at::maybe_wrap_dim(given[1].toInt(), self.dim());
  if (!scatter_checks(self, index, out, dim)) return false;
  results = {out};
  if (index.numel() == 0) return true;
  const Tensor value = at::empty({}, self.options()).fill_(given[3].toScalar()).expand(index.sizes());
  return launch_along("scatter", out, iterate(along(out, index, dim), value, index.to(at::kLong)), out, dim);
}
/// (self, dim, index, src, out)
bool scatter_add(Given given, Results& results) {
  const Tensor self = given[0].toTensor(), index = given[2].toTensor(), source = given[3].toTensor(), out = given[4].toTensor();
  const std::int64_t dim = at::maybe_wrap_dim(given[1].toInt(), self.dim());
  if (!adds(self) || !adds(source) || source.scalar_type() != self.scalar_type() || source.dim() != index.dim()) return false;
  for (std::int64_t d = 0; d < index.dim(); ++d)
    if (index.size(d) > source.size(d)) return false;
  if (!scatter_checks(self, index, out, dim)) return false;
  results = {out};
  if (index.numel() == 0 || out.numel() == 0) return true;
  const Tensor target = out.contiguous();
  const Tensor to = at::empty(index.sizes(), index.options().dtype(at::kLong).memory_format(at::MemoryFormat::Contiguous));
  // Places are counted from the start of `target`: an operand at address 0 gives offsets alone.
  const at::TensorIterator iterator = iterate(to, along(target, index, dim), index.to(at::kLong));
  Grid grid;
  if (!make_grid(iterator, grid)) return false;
  const auto element = static_cast<std::int64_t>(target.element_size());
  launch_grid(to, unit_of(to).device->kernel("index", "-DINDEX=ulong -DRAW=uint", "destinations"),
              {Argument::memory(iterator.data_ptr(0)), Argument::memory(iterator.data_ptr(2)), index_mark(to), count(target.size(dim)),
               count(target.stride(dim) * element), count(element), Argument::value(grid)},
              grid);
  const Tensor from = source.as_strided(index.sizes(), source.strides()).contiguous();
  add_rows(target, from, to.view({-1}), {1, target.numel(), 1});
  if (!target.is_same(out)) out.copy_(target);
  return true;
}

}  // namespace

void register_indexing() {
  static auto* aten = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::XPU, __FILE__, __LINE__);
  aten->impl("index_select", as_kernel<&index_select>());
  aten->impl("embedding_dense_backward", as_kernel<&embedding_backward>());
  aten->impl("index_add.out", as_kernel<&index_add>());
  aten->impl("index.Tensor_out", as_kernel<&index_tensor>());
  aten->impl("_index_put_impl_", as_kernel<&index_put>());
  aten->impl("gather.out", as_kernel<&gather>());
  aten->impl("scatter.src_out", as_kernel<&scatter>());
  aten->impl("scatter.value_out", as_kernel<&scatter_value>());
  aten->impl("scatter_add.out", as_kernel<&scatter_add>());
}

}  // namespace ipexrun::preload::xpu
