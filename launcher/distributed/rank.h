// Which rank of a distributed job this process is, as the engine that started it says in the environment. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ipexrun::launcher {

/// Of a whole job. More are taken for a mistake.
constexpr int kMostRanks = 1 << 24;

enum class Engine {
  kTorchrun,
  kOpenMpi,
  kHydra,     ///< MPICH's mpirun
  kIntelMpi,  ///< Intel MPI's, which is Hydra with pinning of its own
  kSlurm,
};

/// "torchrun", "mpirun (Open MPI)", ...
const char* engine_name(Engine engine);

struct Rank {
  Engine engine = Engine::kTorchrun;
  int local_rank = 0;
  int local_size = 1;
  int rank = 0;
  int world_size = 1;
  int restarts = 0;               ///< how often torchrun has restarted the job so far
  std::string marker;             ///< the variable that no process above the rank has: "LOCAL_RANK", "PMI_RANK", ...
  bool bound_by_slurm = false;    ///< Slurm says that it bound the tasks (SLURM_CPU_BIND_TYPE)
  bool unbound_by_slurm = false;  ///< Slurm says that it did not
};

struct RankSearch {
  std::optional<Rank> rank;
  std::string problem;  ///< variables that contradict each other, in one sentence; "" = none
};

/// torchrun's variables are looked at first, then Open MPI's, Hydra's and Slurm's: an engine that runs inside another one is nearer to
/// the program.
RankSearch find_rank(const std::map<std::string, std::string>& environment);

/// MASTER_ADDR and MASTER_PORT for a rank of mpirun or srun whose environment has none, as far as they can be known: a job of one host
/// meets on that host, Slurm names its hosts. "" = cannot be known.
struct Meeting {
  std::string address;
  std::string port;
  std::string address_from;  ///< why that one, for --explain
  std::string port_from;
};
Meeting meeting_of(const Rank& rank, const std::map<std::string, std::string>& environment);

/// Slurm's "2(x3),1": tasks of node number `node`; nullopt when the text is not of that form or has no such node.
std::optional<int> tasks_on_node(const std::string& text, int node);

/// The first host of Slurm's "cn[07-12,15],gpu1"; "" when the text is not of that form.
std::string first_host(const std::string& node_list);

}  // namespace ipexrun::launcher
