// Known options that this version refuses, each with what to do instead.
#include "launcher/cli/rows.h"

namespace ipexrun::launcher {

using namespace setters;  // NOLINT(google-build-using-namespace): the row builders

void add_later_rows(std::vector<OptionRow>& rows) {
  rows.push_back(refused("benchmark", "", "its allocator profile never gives memory back, so it is not offered",
                         "--bench measures a program; MALLOC_CONF is passed through", OptionGroup::kCompatible));
  const char* distributed = "runs on several hosts or ranks come with a later version";
  const char* hint = "start ipexrun under torchrun, mpirun or srun on each host meanwhile";
  rows.push_back(refused("nnodes", "N", distributed, hint));
  rows.push_back(with_aliases(refused("nprocs-per-node", "N", distributed, hint), {"nproc-per-node"}));
  rows.push_back(refused("hostfile", "FILE", distributed, hint));
  rows.push_back(refused("master-addr", "ADDRESS", distributed, hint));
  rows.push_back(refused("master-port", "PORT", distributed, hint));
  rows.push_back(refused("extra-mpi-params", "TEXT", distributed, hint));
  rows.push_back(refused("ccl-worker-count", "N", distributed, hint));
  rows.push_back(refused("logical-cores-for-ccl", "", distributed, hint));
  rows.push_back(refused("distributed", "", distributed, hint));
  rows.push_back(refused("verify", "", "comparing a whole run with stock comes with a later version",
                         "--bench-compare stock compares the speed of the two"));
}

}  // namespace ipexrun::launcher
