#pragma once

#include <ATen/core/Tensor.h>

#include "preload/plugin/graph/ir.h"

namespace ipexrun::preload::graph {

/// How the elements of a tensor of 3 to 5 dimensions lie. What is planar and channels last at once is called as its strides are.
Layout layout_of(const at::Tensor& tensor);

}  // namespace ipexrun::preload::graph
