// torch's own intra-op pool, in the form that kernels/ takes.
#pragma once

#include "kernels/parallel.h"

namespace ipexrun::preload {

/// As many workers as at::get_num_threads() says; serial inside a parallel region, as torch's own kernels are.
kernels::Parallel torch_pool();

}  // namespace ipexrun::preload
