// Shared by the files that register kernels.
#pragma once

namespace torch {
class Library;
}

namespace ipexrun::preload {

/// Whether stock's generated kernel, and nobody else's, stands at the CPU key of aten::name.overload.
bool has_stock_kernel(const char* name, const char* overload);

/// Our registrations at the CPU key of aten.
torch::Library& cpu_library();

}  // namespace ipexrun::preload
