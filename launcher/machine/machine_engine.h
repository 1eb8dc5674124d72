// The process that started a rank (torchrun's agent, mpirun or its proxy, a Slurm step), as /proc shows it.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ipexrun::launcher {

struct EngineProcess {
  std::string own_omp_threads;                   ///< its OMP_NUM_THREADS when it was started, "" = none
  bool environment_known = false;                ///< false: `own_omp_threads` says nothing
  bool found = false;                            ///< false: no process above this one is without the rank's variables
  std::optional<std::vector<int>> cpus_allowed;  ///< of the engine
  std::optional<std::vector<int>> cpus_of_rank;  ///< of this process
};

/// Goes up from this process to the first one whose environment has no variable `marker`: that one is the engine, what lies between
/// (a shell, env) belongs to the rank. Reads <sysroot>/proc/self/status and <sysroot>/proc/<pid>/{status,environ}.
EngineProcess read_engine_process(const std::string& sysroot, const std::string& marker);

}  // namespace ipexrun::launcher
