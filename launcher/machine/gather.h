// `ipexrun gather`: what `--sysroot` needs to see this machine again, without private data.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "launcher/machine/tree.h"

namespace ipexrun::launcher {

struct Gathered {
  Tree tree;
  std::size_t files = 0;
  std::size_t bytes = 0;
  std::size_t hidden_names = 0;       ///< parts of cgroup names that were replaced
  std::vector<std::string> left_out;  ///< files that were there and could not be taken, with the reason
};

/// Reads the machine below `sysroot` ("" = this one). `environment`: NAME=value, of which a short list of names is kept.
Gathered gather(const std::string& sysroot, const std::vector<std::string>& environment);

}  // namespace ipexrun::launcher
