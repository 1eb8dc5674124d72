#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <set>
#include <string>
#include <vector>

#include "preload/xpu/backend.h"
#include "preload/xpu/fallback.h"
#include "preload/xpu/grid.h"
#include "preload/xpu/operators.h"
#include "preload/xpu/transfer.h"

namespace ipexrun::preload::xpu {
namespace {

using at::Tensor;

c10::Device checked(std::optional<c10::Device> device, std::optional<at::Layout> layout, std::optional<bool> pinned) {
  TORCH_CHECK(!layout || *layout == at::kStrided, "empty on xpu makes strided tensors");
  TORCH_CHECK(!pinned || !*pinned, "only dense CPU tensors can be pinned");
  c10::Device out = device.value_or(c10::Device(c10::DeviceType::XPU));
  (void)unit_of(out);  // throws for an index that is not there
  if (!out.has_index()) out.set_index(static_cast<c10::DeviceIndex>(::ipexrun::xpu::thread_place().device));
  return out;
}

Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> type, std::optional<at::Layout> layout, std::optional<c10::Device> device,
             std::optional<bool> pinned, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(checked(device, layout, pinned));
  return at::detail::empty_generic(sizes, &device_allocator(), c10::DispatchKeySet(c10::DispatchKey::XPU), c10::dtype_or_default(type),
                                   format);
}

Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> type, std::optional<at::Layout> layout,
                     std::optional<c10::Device> device, std::optional<bool> pinned) {
  const c10::DeviceGuard guard(checked(device, layout, pinned));
  return at::detail::empty_strided_generic(sizes, strides, &device_allocator(), c10::DispatchKeySet(c10::DispatchKey::XPU),
                                           c10::dtype_or_default(type));
}

Tensor& copy_(Tensor& self, const Tensor& from, bool non_blocking) { return copy(self, from, non_blocking); }

Tensor copy_from(const Tensor& from, const Tensor& to, bool non_blocking) {
  Tensor target = to;
  return copy(target, from, non_blocking);
}
Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  Tensor target = to;
  if (target.sizes() != from.sizes()) target.resize_(from.sizes());
  return copy(target, from, false);
}

/// Makes the storage at least `bytes` long; what is there stays.
void grow(const Tensor& tensor, std::size_t bytes) {
  c10::Storage storage = tensor.storage();
  if (storage.nbytes() >= bytes) return;
  TORCH_CHECK(storage.resizable(), "trying to resize storage that is not resizable");
  const c10::DeviceGuard guard(tensor.device());
  c10::DataPtr data = device_allocator().allocate(bytes);
  unit_of(tensor).device->copy(data.get(), storage.data(), storage.nbytes(), stream_of(tensor));
  (void)storage.set_data_ptr(std::move(data));
  storage.set_nbytes(bytes);
}

void fit_storage(const Tensor& tensor) {
  if (tensor.numel() == 0) return;
  grow(tensor, at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.element_size(),
                                                static_cast<std::size_t>(tensor.storage_offset())));
}

const Tensor& resize_(const Tensor& self, at::IntArrayRef sizes, std::optional<at::MemoryFormat> format) {
  if (self.sizes() == sizes && !format) return self;
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  impl->generic_set_sizes_contiguous(sizes);
  if (format) {
    TORCH_CHECK(*format != at::MemoryFormat::Preserve, "Unsupported memory format", *format);
    impl->empty_tensor_restride(*format);
  }
  fit_storage(self);
  return self;
}

Tensor& set_storage(Tensor& self, at::Storage source, std::int64_t offset, at::IntArrayRef sizes, at::IntArrayRef strides) {
  TORCH_CHECK(source.device().is_xpu(), "set_ of an xpu tensor takes a storage on xpu, not on ", source.device());
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  impl->set_storage_offset(offset);
  if (strides.data() != nullptr && (strides.size() == sizes.size())) {
    impl->set_sizes_and_strides(sizes, strides);
  } else {
    impl->generic_set_sizes_contiguous(sizes);
  }
  fit_storage(self);
  return self;
}
Tensor& set_whole_storage(Tensor& self, at::Storage source) {
  const auto elements = static_cast<std::int64_t>(source.nbytes() / self.element_size());
  return set_storage(self, std::move(source), 0, {elements}, {});
}
Tensor& set_tensor(Tensor& self, const Tensor& source) {
  if (self.is_same(source)) return self;
  return set_storage(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}
Tensor& set_nothing(Tensor& self) {
  const Tensor none = at::empty({0}, self.options());
  return set_storage(self, none.storage(), 0, {0}, {});
}

at::Scalar local_scalar_dense(const Tensor& self) {
  TORCH_CHECK(self.numel() == 1, "a Tensor with ", self.numel(), " elements cannot be converted to Scalar");
  return to_cpu(self).resolve_conj().resolve_neg().item();
}

Tensor& fill_scalar(Tensor& self, const at::Scalar& value) {
  if (self.numel() == 0) return self;
  at::assert_no_internal_overlap(self);
  if (raw_type(self.element_size()) == nullptr || self.is_conj() || self.is_neg()) {
    Tensor host = at::empty({}, self.options().device(at::kCPU)).fill_(value);
    return copy(self, host, false);
  }
  const Tensor host = at::empty({}, self.options().device(at::kCPU).pinned_memory(false)).fill_(value);
  fill_kernel(self, host.const_data_ptr());
  return self;
}
Tensor& fill_tensor(Tensor& self, const Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "fill_ only supports 0-dimension value tensor but got tensor with ", value.dim(), " dimensions.");
  if (value.is_xpu()) return copy(self, value.expand(self.sizes()), false);
  return fill_scalar(self, value.item());
}
Tensor& zero_(Tensor& self) { return fill_scalar(self, 0); }

void record_stream(Tensor& self, c10::Stream stream) { device_allocator().recordStream(self.storage().data_ptr(), stream); }

Tensor as_strided(const Tensor& self, at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<std::int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, sizes, strides, offset);
}

/// Of all operators that have a kernel of their own at `cpu` and none of ours, the CPU's is used: what torch composes for devices without
/// one would copy an empty output there and back for nothing, and does not know every layout.
void prefer_cpu_kernels(torch::Library& library, c10::DispatchKey cpu, c10::DispatchKey xpu) {
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  std::set<std::string> ours;
  const auto base_of = [](std::string name) {
    if (name.size() > 6 && name.back() == '_') name.pop_back();
    return name;
  };
  std::vector<c10::OperatorName> names = dispatcher.getAllOpNames();
  for (const c10::OperatorName& name : names) {
    const auto op = dispatcher.findOp(name);
    // Where we have "x.out", torch makes x and x_ of it.
    if (op && op->hasKernelForDispatchKey(xpu)) ours.insert(base_of(name.name));
  }
  for (const c10::OperatorName& name : names) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    const auto op = dispatcher.findOp(name);
    if (!op || !op->hasKernelForDispatchKey(cpu) || op->hasKernelForDispatchKey(xpu) || ours.count(base_of(name.name)) != 0) continue;
    const std::string full = name.name.substr(6) + (name.overload_name.empty() ? "" : "." + name.overload_name);
    library.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
  }
}

bool is_set_to(const Tensor& self, const Tensor& other) {
  return self.storage().unsafeGetStorageImpl() == other.storage().unsafeGetStorageImpl() &&
         self.storage_offset() == other.storage_offset() && self.sizes() == other.sizes() && self.strides() == other.strides();
}

}  // namespace

void register_rest() {
  static auto* dense = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::XPU, __FILE__, __LINE__);
  prefer_cpu_kernels(*dense, c10::DispatchKey::CPU, c10::DispatchKey::XPU);
  static auto* sparse = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::SparseXPU, __FILE__, __LINE__);
  prefer_cpu_kernels(*sparse, c10::DispatchKey::SparseCPU, c10::DispatchKey::SparseXPU);
  static auto* rows = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::SparseCsrXPU, __FILE__, __LINE__);
  prefer_cpu_kernels(*rows, c10::DispatchKey::SparseCsrCPU, c10::DispatchKey::SparseCsrXPU);
}

void register_basics() {
  // Handles live as long as the process: destroying one would take its kernels out again.
  static auto* any = new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::XPU, __FILE__, __LINE__);
  any->fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
  static auto* any_sparse = new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::SparseXPU, __FILE__, __LINE__);
  any_sparse->fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
  static auto* any_compressed = new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::SparseCsrXPU, __FILE__, __LINE__);
  any_compressed->fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());

  static auto* aten = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::XPU, __FILE__, __LINE__);
  aten->impl("empty.memory_format", &empty);
  aten->impl("empty_strided", &empty_strided);
  aten->impl("copy_", &copy_);
  aten->impl("_copy_from", &copy_from);
  aten->impl("_copy_from_and_resize", &copy_from_and_resize);
  aten->impl("resize_", &resize_);
  aten->impl("as_strided", &as_strided);
  aten->impl("view", TORCH_FN(at::native::view));
  aten->impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  aten->impl("unfold", TORCH_FN(at::native::unfold));
  aten->impl("view_as_real", TORCH_FN(at::native::view_as_real));
  aten->impl("view_as_complex", TORCH_FN(at::native::view_as_complex));
  aten->impl("set_.source_Storage_storage_offset", &set_storage);
  aten->impl("set_.source_Storage", &set_whole_storage);
  aten->impl("set_.source_Tensor", &set_tensor);
  aten->impl("set_", &set_nothing);
  aten->impl("_local_scalar_dense", &local_scalar_dense);
  aten->impl("fill_.Scalar", &fill_scalar);
  aten->impl("fill_.Tensor", &fill_tensor);
  aten->impl("zero_", &zero_);
  aten->impl("record_stream", &record_stream);
  aten->impl("is_set_to", &is_set_to);
}

}  // namespace ipexrun::preload::xpu
