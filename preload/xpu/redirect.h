// Device words of Python: "cuda" read as "xpu" (ipexrun xpu --redirect cuda).
#pragma once

#include <string>

namespace ipexrun::preload::xpu {

/// From now on libtorch_python reads "cuda" and "cuda:N", wherever it takes a device as text, as xpu of the same number. "" or why not;
/// once done it stays. Needs the GIL, so that no other thread reads a device meanwhile.
std::string redirect_cuda();

}  // namespace ipexrun::preload::xpu
