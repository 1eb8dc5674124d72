#include "preload/xpu/transfer.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>

#include "preload/xpu/grid.h"
#include "preload/xpu/index_check.h"
#include "preload/xpu/place.h"

namespace ipexrun::preload::xpu {
namespace {

using at::Tensor;

bool dense(const Tensor& tensor) { return tensor.is_non_overlapping_and_dense(); }
bool same_layout(const Tensor& left, const Tensor& right) { return left.sizes() == right.sizes() && left.strides() == right.strides(); }

/// The elements as they lie in memory: without the bits that say that they count as conjugated or negated.
Tensor physical(const Tensor& tensor) {
  if (!tensor.is_conj() && !tensor.is_neg()) return tensor;
  Tensor out = at::alias(tensor);
  out._set_conj(false);
  out._set_neg(false);
  return out;
}

void write_dense(const Tensor& to, const Tensor& host) {
  unit_of(to).device->write(to.mutable_data_ptr(), host.const_data_ptr(), to.nbytes(), stream_of(to));
}
void read_dense(const Tensor& host, const Tensor& from) {
  unit_of(from).device->read(host.mutable_data_ptr(), from.const_data_ptr(), host.nbytes(), stream_of(from));
  check_indices(from.device());
}

Tensor empty_like_layout(const Tensor& like, c10::Device device) {
  const auto options = like.options().device(device).pinned_memory(false);
  return dense(like) ? at::empty_strided(like.sizes(), like.strides(), options) : at::empty(like.sizes(), options);
}

void on_device(const Tensor& to, const Tensor& from);

/// The physical elements of a strided xpu tensor on the CPU, with its strides where they are dense.
Tensor read_back(const Tensor& from) {
  Tensor out = empty_like_layout(from, at::kCPU);
  if (from.numel() == 0) return out;
  if (dense(from)) {
    read_dense(out, from);
    return out;
  }
  const Tensor packed = at::empty(from.sizes(), from.options());
  on_device(packed, from);
  read_dense(out, packed);
  return out;
}

/// `host` has the sizes and the dtype of `to`.
void write(const Tensor& to, const Tensor& host) {
  if (dense(to)) {
    if (same_layout(to, host)) return write_dense(to, host);
    Tensor arranged = at::empty_strided(to.sizes(), to.strides(), host.options().pinned_memory(false));
    arranged.copy_(host);
    return write_dense(to, arranged);
  }
  const Tensor packed = at::empty(to.sizes(), to.options());
  write_dense(packed, host.contiguous());
  on_device(to, packed);
}

/// Both on the same device, of the same sizes, physical elements; dtypes may differ.
void on_device(const Tensor& to, const Tensor& from) {
  if (to.scalar_type() == from.scalar_type()) {
    if (same_layout(to, from) && dense(to)) {
      unit_of(to).device->copy(to.mutable_data_ptr(), from.const_data_ptr(), to.nbytes(), stream_of(to));
      return;
    }
    return copy_kernel(to, from);
  }
  if (to.is_complex() && from.is_complex()) return on_device(at::view_as_real(to), at::view_as_real(from));
  if (to.is_complex()) {
    const Tensor parts = at::view_as_real(to);
    on_device(parts.select(-1, 0), from);
    parts.select(-1, 1).zero_();
    return;
  }
  if (from.is_complex()) return on_device(to, at::view_as_real(from).select(-1, 0));
  if (kernel_type(to.scalar_type()) != nullptr && kernel_type(from.scalar_type()) != nullptr) return copy_kernel(to, from);
  write(to, read_back(from).to(to.scalar_type()));  // types of eight bits and the like
}

Tensor sparse_to_cpu(const Tensor& xpu) {
  if (xpu.layout() == at::kSparse) {
    auto* impl = static_cast<at::SparseTensorImpl*>(xpu.unsafeGetTensorImpl());
    Tensor out = at::_sparse_coo_tensor_unsafe(to_cpu(impl->indices()), to_cpu(impl->values()), xpu.sizes(),
                                               xpu.options().device(at::kCPU).pinned_memory(false));
    static_cast<at::SparseTensorImpl*>(out.unsafeGetTensorImpl())->set_coalesced(impl->coalesced());
    return out;
  }
  auto* impl = static_cast<at::SparseCsrTensorImpl*>(xpu.unsafeGetTensorImpl());
  return at::_sparse_compressed_tensor_unsafe(to_cpu(impl->compressed_indices()), to_cpu(impl->plain_indices()), to_cpu(impl->values()),
                                              xpu.sizes(), xpu.options().device(at::kCPU).pinned_memory(false));
}

void fill_sparse(at::SparseTensorImpl* to, const Tensor& cpu, c10::Device device) {
  auto* from = static_cast<at::SparseTensorImpl*>(cpu.unsafeGetTensorImpl());
  to->raw_resize_(from->sparse_dim(), from->dense_dim(), cpu.sizes());
  to->set_indices_and_values_unsafe(to_xpu(from->indices(), device), to_xpu(from->values(), device));
  to->set_coalesced(from->coalesced());
}

void fill_compressed(at::SparseCsrTensorImpl* to, const Tensor& cpu, c10::Device device) {
  auto* from = static_cast<at::SparseCsrTensorImpl*>(cpu.unsafeGetTensorImpl());
  to->set_member_tensors(to_xpu(from->compressed_indices(), device), to_xpu(from->plain_indices(), device), to_xpu(from->values(), device),
                         cpu.sizes());
}

Tensor sparse_to_xpu(const Tensor& cpu, c10::Device device) {
  if (cpu.layout() == at::kSparse) {
    Tensor out = at::detail::make_tensor<at::SparseTensorImpl>(c10::DispatchKeySet(c10::DispatchKey::SparseXPU), cpu.dtype());
    fill_sparse(static_cast<at::SparseTensorImpl*>(out.unsafeGetTensorImpl()), cpu, device);
    return out;
  }
  Tensor out = at::detail::make_tensor<at::SparseCsrTensorImpl>(c10::DispatchKeySet(c10::DispatchKey::SparseCsrXPU), device, cpu.layout(),
                                                                cpu.dtype());
  fill_compressed(static_cast<at::SparseCsrTensorImpl*>(out.unsafeGetTensorImpl()), cpu, device);
  return out;
}

}  // namespace

Tensor to_cpu(const Tensor& xpu, bool whole_storage) {
  if (xpu.layout() != at::kStrided) return sparse_to_cpu(xpu);
  if (whole_storage) {
    const auto elements = static_cast<std::int64_t>(xpu.storage().nbytes() / xpu.element_size());
    const Tensor all = physical(xpu).as_strided({elements}, {1}, 0);
    Tensor out = read_back(all).as_strided(xpu.sizes(), xpu.strides(), xpu.storage_offset());
    if (xpu.is_conj()) out._set_conj(true);
    if (xpu.is_neg()) out._set_neg(true);
    return out;
  }
  Tensor out = read_back(physical(xpu));
  // The CPU's kernels understand the bits where torch gives them any, so the copy has what the original has.
  if (xpu.is_conj()) out._set_conj(true);
  if (xpu.is_neg()) out._set_neg(true);
  return out;
}

Tensor to_xpu(const Tensor& cpu, c10::Device device) {
  if (cpu.layout() != at::kStrided) return sparse_to_xpu(cpu, device);
  if (cpu._is_zerotensor()) return at::zeros(cpu.sizes(), cpu.options().device(device));  // has no memory
  const Tensor plain = physical(cpu);
  const c10::DeviceGuard guard(device);
  Tensor out = empty_like_layout(plain, device);
  if (out.numel() > 0) write(out, plain);
  if (cpu.is_conj()) out._set_conj(true);
  if (cpu.is_neg()) out._set_neg(true);
  return out;
}

void write_back(const Tensor& xpu, const Tensor& cpu) {
  const c10::DeviceGuard guard(xpu.device());
  if (xpu.layout() == at::kSparse) return fill_sparse(static_cast<at::SparseTensorImpl*>(xpu.unsafeGetTensorImpl()), cpu, xpu.device());
  if (xpu.layout() != at::kStrided) {
    fill_compressed(static_cast<at::SparseCsrTensorImpl*>(xpu.unsafeGetTensorImpl()), cpu, xpu.device());
    return;
  }
  Tensor target = xpu;
  if (target.sizes() != cpu.sizes()) target.resize_(cpu.sizes());
  copy(target, cpu, false);
}

Tensor& copy(Tensor& to, const Tensor& from, bool) {
  if (to.is_same(from)) return to;
  TORCH_CHECK(from.layout() == at::kStrided && to.layout() == at::kStrided, "copy_ on xpu is for strided tensors on both sides");
  Tensor source = from.sizes() == to.sizes() ? from : from.expand(to.sizes());
  at::assert_no_internal_overlap(to);
  if (to.numel() == 0) return to;
  if (!to.is_complex() && source.is_complex()) {
    TORCH_WARN_ONCE("Casting complex values to real discards the imaginary part");
  }
  // What a conjugated view shows as x lies in memory as conj(x).
  if (to.is_conj()) source = source.conj();
  if (to.is_neg()) source = at::_neg_view(source);
  const Tensor target = physical(to);
  if (!to.is_xpu()) {
    target.copy_(to_cpu(source));
    return to;
  }
  const c10::DeviceGuard guard(to.device());
  const bool bits = source.is_conj() || source.is_neg();
  if (source.is_xpu() && source.device() == to.device() && !bits) {
    at::assert_no_partial_overlap(to, source);
    on_device(target, source);
    return to;
  }
  Tensor host = source.is_xpu() ? to_cpu(source) : source._is_zerotensor() ? at::zeros(source.sizes(), source.options()) : source;
  if (bits || host.scalar_type() != to.scalar_type()) {
    Tensor plain = at::empty(host.sizes(), host.options().dtype(to.scalar_type()).pinned_memory(false));
    plain.copy_(host);
    host = plain;
  }
  write(target, host);
  return to;
}

}  // namespace ipexrun::preload::xpu
