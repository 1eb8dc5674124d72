// What the user asked for, after the command line, the config file and the environment were merged. Filled by cli.cpp, read by
// the planner, the runner and bench; nobody changes it afterwards. Names follow the long options.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ipexrun::launcher {

enum class Command { kRun, kTopology, kEnv, kDoctor, kGather, kVersion, kHelp, kTune, kAot, kXpu, kCompletion, kManPage, kExplainLast };

/// How PROGRAM is to be started.
enum class ProgramKind {
  kScript,      ///< script.py, run under `python`, else `python3`, of PATH
  kModule,      ///< -m module, likewise
  kExecutable,  ///< anything else; `python script.py` is an executable with arguments
};

struct BenchOptions {
  bool enabled = false;              ///< --bench, or implied by any --bench-* option
  std::optional<int> warmup;         ///< --bench-warmup: calls left out at the start; default: see docs/bench.md
  std::optional<long> iters;         ///< --bench-iters: calls measured, then the measurement is over
  std::optional<double> seconds;     ///< --bench-seconds: likewise, by time
  std::vector<std::string> compare;  ///< --bench-compare stock[,launch]: run these beside ipexrun, interleaved
  int pairs = 5;                     ///< --bench-pairs: rounds of --bench-compare
  std::vector<std::string> outputs;  ///< --bench-output FILE.{json,csv,md,html}, repeatable
  std::string metric;                ///< --bench-metric REGEX with one group, for programs that print a number
  bool stop = false;                 ///< --bench-stop: end the program once iters or seconds are full
};

/// Many ranks and hosts (docs/distributed.md).
struct DistributedOptions {
  // What engine is to be started, and how. Any of these makes the run a job of ranks.
  std::string nnodes;                  ///< hosts: "2", or torchrun's "1:4"; "" = not given
  std::optional<int> nprocs_per_node;  ///< ranks of a host; 0 = one a NUMA node
  std::string engine = "auto";         ///< auto, torchrun, mpirun, srun
  std::string hostfile;
  std::string rdzv_endpoint;  ///< HOST:PORT
  std::string rdzv_id;
  std::string rdzv_backend;
  std::optional<int> node_rank;
  std::string local_addr;
  std::string master_addr;
  std::optional<int> master_port;
  std::string extra_mpi_params;  ///< further words for mpirun or srun, separated by blanks

  // What holds for each rank.
  int ccl_worker_count = 0;            ///< CPUs kept free for communication threads
  bool logical_cores_for_ccl = false;  ///< put those on second hardware threads
  bool rank_slice = true;              ///< false: --no-rank-slice
  bool as_rank = false;                ///< --as-rank: this process was started by an engine that an ipexrun started

  /// Whether an engine is to be started.
  [[nodiscard]] bool asked() const {
    return !as_rank && (!nnodes.empty() || nprocs_per_node || engine != "auto" || !hostfile.empty() || !rdzv_endpoint.empty() ||
                        !rdzv_id.empty() || !rdzv_backend.empty() || node_rank || !local_addr.empty() || !extra_mpi_params.empty());
  }
};

inline constexpr int kLoaderCoresAuto = -1;

struct Options {
  Command command = Command::kRun;

  // The program.
  ProgramKind program_kind = ProgramKind::kExecutable;
  std::string program;            ///< as typed
  std::vector<std::string> args;  ///< everything after it, untouched

  // Instances and cores.
  int ninstances = 0;            ///< 0 = not given
  bool ninstances_auto = false;  ///< --ninstances auto: the planner's own choice for total throughput
  int ncores_per_instance = 0;   ///< 0 = not given
  int loader_cores = 0;          ///< CPUs of an instance kept for DataLoader workers; 0 = none, kLoaderCoresAuto = the planner's choice
  std::vector<int> nodes_list;   ///< OS NUMA node numbers; empty = all allowed
  std::vector<int> cores_list;   ///< OS CPU numbers; empty = all allowed
  bool use_logical_cores = false;
  bool latency_mode = false;
  bool throughput_mode = false;
  bool multi_instance = false;         ///< run_cpu's name: throughput_mode, where nothing else says how many instances
  std::vector<int> instance_idx;       ///< run only these instances of the plan; empty = all
  bool skip_cross_node_cores = false;  ///< drop cores so that no instance spans nodes (run_cpu's name)
  bool bind_numa_node = false;         ///< each instance within one node, the nodes share the instances (IPEX's name)
  bool use_e_cores = false;            ///< also use the E-cores of a hybrid CPU
  std::string strategy = "close";      ///< close, scatter: which of the possible places a smaller number of instances takes
  std::string place;                   ///< core, l3, node, socket: the domain that an instance is kept within; "" = not given

  // Process settings.
  std::string memory_allocator = "auto";  ///< auto, default, jemalloc, tcmalloc, mimalloc or the path of a library
  std::string omp_runtime = "auto";       ///< auto, default, intel, llvm or the path of a library
  std::string dtype = "auto";             ///< auto, float32, bfloat16, float16
  std::string graph_mode = "auto";        ///< auto, dynamo, trace, off
  std::string inductor = "auto";          ///< auto, kept, off
  std::string select = "fast";            ///< fast, thorough, off
  bool split_sgd = false;                 ///< --split-sgd: bf16 weights in torch.optim.SGD
  bool optimize = true;                   ///< false: --no-optimize, launch only
  bool pin = true;                        ///< false: --no-pin (also IPEX's --multi-task-manager none is NOT this)
  bool pin_asked = false;                 ///< --pin: pin although a CPU quota says that others share the CPUs
  bool bind_memory = true;                ///< false: run_cpu's --disable-numactl
  std::string pack_memory;                ///< bytes with suffix; "" = default
  std::string inherit = "all";            ///< all, python, none
  bool require_shim = false;
  std::string memory = "default";          ///< bounded, throughput, default: the memory profile
  bool crash_report = false;               ///< a stack of a crashing instance (rules.md)
  std::map<std::string, std::string> env;  ///< from the config's `env:`

  // Ranks.
  DistributedOptions distributed;
  bool slices_are_ranks = false;  ///< set by rank_plan.cpp: `ninstances` is the number of ranks of this host, nobody asked for it
  std::string config;             ///< the --config file, "" = none

  // Supervision.
  int max_restarts = 0;        ///< how often a failed instance is started again
  double timeout_seconds = 0;  ///< the whole run; 0 = no limit

  // Logs.
  std::string log_dir;  ///< "" = output is not redirected
  std::string log_file_prefix = "run";
  int log_keep = 0;  ///< keep the files of this many runs (this one included), remove older ones; 0 = keep all

  // Intel GPUs (ipexrun xpu).
  std::vector<int> devices;      ///< numbers of `ipexrun topology`; empty = all discrete ones, or the integrated one
  std::vector<int> tiles;        ///< of each GPU; empty = all
  std::string device_hierarchy;  ///< flat, composite, combined; "" = the environment's, else the driver's default
  bool one_per_tile = false;
  bool one_per_device = false;
  std::string opencl = "gpu";  ///< device xpu of ours: gpu, any (no Intel GPU is looked for), off (launch only)
  std::string redirect;        ///< cuda: the program's device cuda is xpu; "" = none

  // What the op tier did.
  bool report = false;        ///< --report: a table on stderr
  std::string report_output;  ///< --report-output FILE.json, "" = none

  // What to print.
  bool dry_run = false;
  bool json = false;
  bool explain = false;
  std::string topology;                ///< "node:2 core:28 pu:2" or FILE.xml, for a machine that is not there
  std::string sysroot;                 ///< folder that stands in for "/" when limits (and, without --topology, the topology) are read
  std::string save_config;             ///< FILE, "" = none
  std::string output;                  ///< `ipexrun gather FILE`, "" = a name made from the time
  bool build = false;                  ///< `ipexrun doctor --build`
  std::string torch_python;            ///< `ipexrun doctor --torch-python PYTHON`, "" = the one in PATH
  bool docs = false;                   ///< `ipexrun env --docs`: docs/env-vars.md
  Command help_of = Command::kRun;     ///< with kHelp: the command that --help was given to
  std::vector<std::string> notes;      ///< one-line remarks made while merging (deprecated names, overridden variables)
  std::vector<std::string> given;      ///< long names given on the command line or in the config, in order
  std::vector<std::string> from_env;   ///< long names of options that the environment says, since nobody gave them
  std::vector<std::string> decisions;  ///< the config's `decisions:` entries, one JSON text each

  BenchOptions bench;
};

}  // namespace ipexrun::launcher
