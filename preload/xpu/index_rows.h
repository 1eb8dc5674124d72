// Rows that a tensor of indices names: what embeddings, index_select, x[i] and their gradients are made of.
#pragma once

#include "preload/xpu/operands.h"

namespace ipexrun::preload::xpu {

/// How a tensor is seen: [outer, size, inner], indices go along `size`.
struct RowsOf {
  std::int64_t outer, size, inner;
  bool from_end = false;  ///< indices below 0 count from the end, as in x[i]; else they point outside
  [[nodiscard]] std::int64_t least() const { return from_end ? -size : 0; }
};

/// The indices as kernels take them: long, contiguous.
at::Tensor as_index(const at::Tensor& index);

/// out[o, i, x] = in[o, index[i], x]. Contiguous tensors of one type.
void select_rows(const at::Tensor& out, const at::Tensor& in, const at::Tensor& index, RowsOf rows);

/// out[o, index[i], x] = values[o, i, x], or the one value; which of several is kept where indices repeat is open.
void put_rows(const at::Tensor& out, const at::Tensor& values, const at::Tensor& index, RowsOf rows);

/// out[o, index[i], x] += scale * in[o, i, x], in any order of equal indices. Real types and long; up to 2^31 indices. -1: no row is left
/// out.
void add_rows(const at::Tensor& out, const at::Tensor& in, const at::Tensor& index, RowsOf rows, double scale = 1,
              std::int64_t skipped = -1);
/// Whether add_rows() knows the type.
bool adds(const at::Tensor& tensor);

}  // namespace ipexrun::preload::xpu
