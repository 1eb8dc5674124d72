// A job of ranks: which engine starts it, and its exact command line. Pure: what has to be looked up comes in JobFacts.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "configs/base/result.h"
#include "configs/contract/plan.h"
#include "launcher/distributed/hostfile.h"
#include "launcher/distributed/rank.h"
#include "launcher/options.h"

namespace ipexrun::launcher {

/// What is there to start ranks with; the caller looks it up, tests make it up.
struct JobFacts {
  std::map<std::string, std::string> env;  ///< the caller's environment
  std::string self;                        ///< absolute path of this launcher
  std::string python;                      ///< absolute path of the interpreter that has torchrun
  std::string mpirun;                      ///< absolute path, "" = none in PATH
  std::string mpirun_version;              ///< what `mpirun --version` prints
  std::string srun;                        ///< absolute path, "" = none in PATH
  std::vector<HostLine> hosts;             ///< of --hostfile
  int numa_nodes = 1;                      ///< of this host, with usable cores: ranks of a host when nobody says how many
  int free_port = 0;                       ///< a port that was free a moment ago, 0 = not looked for
  bool is_meeting_host = false;            ///< --rdzv-endpoint is an address of this host that its name does not lead to
  bool root = false;                       ///< this user is root
  std::vector<std::string> rank_words;     ///< rank_arguments() of cli.h
};

/// A job, decided.
struct Job {
  Engine engine = Engine::kTorchrun;
  int ranks_per_host = 1;
  std::string hosts = "1";  ///< as it goes to the engine: "2", torchrun's "1:4"
  InstancePlan process;     ///< the engine's own process: argv, executable and what its environment adds
  std::vector<Reason> reasons;
};

enum class EngineChoice { kTorchrun, kMpirun, kSrun };

/// --engine, or what follows from the other options and from being in a Slurm allocation. kExitUsage for options that contradict each
/// other or that the engine has no use for.
Result<EngineChoice> choose_engine(const Options& options, const JobFacts& facts, std::vector<Reason>& reasons);

/// kExitUsage for torchrun's host of a number that there is not, which would wait for ever for others.
Status check_node_rank(const DistributedOptions& wanted);

/// Whose mpirun says this: Open MPI's, MPICH's or Intel MPI's; nullopt for none of them.
std::optional<Engine> mpirun_kind(const std::string& version_text);

/// The job. kExitUsage when what was asked for is impossible or not complete, kExitNotFound when the engine is not installed.
Result<Job> make_job(const Options& options, const JobFacts& facts);

/// OMP_NUM_THREADS of the engine's own environment, when the caller's has none: torchrun would set it to 1, with a paragraph about it.
void give_threads(const LaunchPlan& slices, const std::map<std::string, std::string>& env, Job& job);

/// `text` cut at blanks; '...' and "..." hold words together. kExitUsage for a quote without its end.
Result<std::vector<std::string>> split_words(const std::string& option, const std::string& text);

}  // namespace ipexrun::launcher
