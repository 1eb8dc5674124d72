// The parts of sparse tensors: real ones, not copies.
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <torch/library.h>

#include "preload/xpu/operators.h"

namespace ipexrun::preload::xpu {
namespace {

using at::Tensor;

at::SparseTensorImpl& coo(const Tensor& tensor) { return *static_cast<at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl()); }
at::SparseCsrTensorImpl& compressed(const Tensor& tensor) { return *static_cast<at::SparseCsrTensorImpl*>(tensor.unsafeGetTensorImpl()); }

Tensor indices(const Tensor& self) { return coo(self).indices(); }
Tensor values(const Tensor& self) { return coo(self).values(); }
std::int64_t nnz(const Tensor& self) { return coo(self).nnz(); }
bool is_coalesced(const Tensor& self) { return coo(self).coalesced(); }
Tensor& set_coalesced(Tensor& self, bool coalesced) {
  coo(self).set_coalesced(coalesced);
  return self;
}
std::int64_t sparse_dim(const Tensor& self) { return coo(self).sparse_dim(); }
std::int64_t dense_dim(const Tensor& self) { return coo(self).dense_dim(); }

/// Of a coalesced tensor, as torch has it.
Tensor checked_indices(const Tensor& self) {
  TORCH_CHECK(coo(self).coalesced(), "Cannot get indices on an uncoalesced tensor, please call .coalesce() first");
  return coo(self).indices().alias();
}
Tensor checked_values(const Tensor& self) {
  TORCH_CHECK(coo(self).coalesced(), "Cannot get values on an uncoalesced tensor, please call .coalesce() first");
  return coo(self).values().alias();
}

Tensor crow(const Tensor& self) { return compressed(self).compressed_indices().alias(); }
Tensor col(const Tensor& self) { return compressed(self).plain_indices().alias(); }
Tensor compressed_values(const Tensor& self) { return compressed(self).values().alias(); }
std::int64_t compressed_nnz(const Tensor& self) { return compressed(self).nnz(); }

}  // namespace

void register_sparse() {
  static auto* sparse = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::SparseXPU, __FILE__, __LINE__);
  sparse->impl("_indices", &indices);
  sparse->impl("_values", &values);
  sparse->impl("indices", &checked_indices);
  sparse->impl("values", &checked_values);
  sparse->impl("_nnz", &nnz);
  sparse->impl("is_coalesced", &is_coalesced);
  sparse->impl("_coalesced_", &set_coalesced);
  sparse->impl("sparse_dim", &sparse_dim);
  sparse->impl("dense_dim", &dense_dim);
  static auto* rows = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::SparseCsrXPU, __FILE__, __LINE__);
  rows->impl("crow_indices", &crow);
  rows->impl("col_indices", &col);
  rows->impl("ccol_indices", &crow);
  rows->impl("row_indices", &col);
  rows->impl("values", &compressed_values);
  rows->impl("_nnz", &compressed_nnz);
}

}  // namespace ipexrun::preload::xpu
