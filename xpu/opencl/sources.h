// The texts of xpu/kernels, which the library carries (embed.cmake).
#pragma once

#include <string>

namespace ipexrun::xpu {

/// The text of a file of xpu/kernels without its ending, with what it shares with the others before it; "" for an unknown one.
std::string kernel_source(const std::string& file);

}  // namespace ipexrun::xpu
