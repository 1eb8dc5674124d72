// Intel GPUs as the kernel shows them. Read from /sys alone and never through a driver library: planning starts no GPU.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launcher/plan/machine.h"

namespace ipexrun::launcher {

/// 0 when the file can be opened for reading and writing, else the errno.
using NodeProbe = std::function<int(const std::string& path)>;
int open_node(const std::string& path);

/// The Intel GPUs below <sysroot>/sys, ordered by Gpu::index. Display controllers of other vendors are left out. Render nodes are tried
/// with `probe`; a `sysroot` without dev/dri (a recorded machine) has none to try, so that its GPUs count as usable.
std::vector<Gpu> read_gpus(const std::string& sysroot, const NodeProbe& probe = open_node);

}  // namespace ipexrun::launcher
