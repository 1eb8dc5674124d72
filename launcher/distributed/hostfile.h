// The hosts of --hostfile. Pure: the caller reads the file.
#pragma once

#include <string>
#include <vector>

#include "configs/base/result.h"

namespace ipexrun::launcher {

struct HostLine {
  std::string host;
  bool open_mpi_form = false;  ///< "host slots=4": Hydra does not read that
  bool hydra_form = false;     ///< "host:4": Open MPI does not read that
  int line = 0;
  bool ipv6 = false;  ///< an address with colons: Hydra does not read that
};

/// One host a line; '#' begins a comment. Open MPI's "host slots=4 max-slots=8" and Hydra's "host:4" are both understood,
/// and IPv6 addresses without brackets. Errors
/// (kExitUsage) name file and line; a file without a host is one.
Result<std::vector<HostLine>> parse_hostfile(const std::string& path, const std::string& text);

}  // namespace ipexrun::launcher
