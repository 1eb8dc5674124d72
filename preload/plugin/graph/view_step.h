// The steps of views (view, transpose, permute, unsqueeze, expand, slice, select, t, alias) without the dispatcher: other sizes and strides
// over the same memory, as stock's kernels make them.
#pragma once

#include "preload/plugin/graph/executor.h"

namespace ipexrun::preload::graph {

/// Null where the node is no such view. What it cannot view, stock's operator does, or refuses.
std::unique_ptr<Step> make_view_step(const Node& node);

/// A tensor over the memory of `base`, as at::as_strided makes it; `offset` counts from the storage's begin.
at::Tensor strided(const at::Tensor& base, at::IntArrayRef sizes, at::IntArrayRef strides, std::int64_t offset);

/// `base`, which is contiguous, in other sizes, one of which may be -1; undefined where these do not fit.
at::Tensor viewed(const at::Tensor& base, at::IntArrayRef sizes);

using Sizes = c10::SmallVector<std::int64_t, 8>;
/// The ints that the argument holds now; false where it is no list of ints.
bool sizes_of(const Argument& argument, const Values& values, Sizes* sizes);

}  // namespace ipexrun::preload::graph
