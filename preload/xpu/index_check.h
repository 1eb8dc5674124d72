// Indices that point outside: kernels skip them and leave a mark, and the next time the host waits for values an error says so. (Asking at
// once would cost a wait for every embedding.)
#pragma once

#include <ATen/core/Tensor.h>

#include "preload/xpu/place.h"

namespace ipexrun::preload::xpu {

/// Where a kernel leaves its mark (common.cl, MARK). The caller launches one that may.
Argument index_mark(const at::Tensor& on);

/// After a wait: throws torch's IndexError if a kernel left a mark since the last call. Costs nothing where none was launched.
void check_indices(c10::Device device);

}  // namespace ipexrun::preload::xpu
