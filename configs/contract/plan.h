// The launch plan: everything that will be done for a run, as data. The planner makes it, --dry-run prints it, the runner
// carries it out and adds nothing. JSON form (`ipexrun --dry-run --json`), written by launcher/plan_json.cpp:
//   {"instances": [{"index", "cpus": [...], "numa_nodes": [...], "threads", "env": {...}, "argv": [...]}], "reasons": [...]}
// Later versions only add keys.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace ipexrun {

/// Why one thing is as it is. `subject` is a stable word (cores, instances, memory, threads, allocator, omp, env, dtype, preload,
/// program, logs, devices), `text` one sentence for a person, `value` what was chosen ("" if it is in the text).
struct Reason {
  std::string subject;
  std::string value;
  std::string text;
  bool warn = false;  ///< said on stderr in every run, not only with --explain
};

/// One tile of a GPU that an instance of `ipexrun xpu` sees. JSON: {"device", "tile", "address"} in the instance's "devices".
struct DevicePlan {
  int device = 0;  ///< its number in `ipexrun topology`
  int tile = 0;
  std::string address;  ///< of the GPU on the PCI bus
};

enum class MemoryPolicy {
  kInherit,  ///< leave the policy of the caller
  kBind,     ///< set_mempolicy(MPOL_BIND, numa_nodes)
};

/// One process to start. Everything is decided; nothing here is looked up again at launch.
struct InstancePlan {
  int index = 0;
  std::vector<int> cpus;        ///< OS CPU numbers, ascending, for sched_setaffinity; empty = affinity is left alone
  std::vector<int> numa_nodes;  ///< OS node numbers that own `cpus`, ascending
  MemoryPolicy memory_policy = MemoryPolicy::kInherit;
  std::vector<DevicePlan> devices;         ///< `ipexrun xpu`: what it sees; empty otherwise
  int threads = 0;                         ///< size of the OpenMP pool; 0 = not set
  std::map<std::string, std::string> env;  ///< variables set or changed for this instance (LD_PRELOAD included)
  std::vector<std::string> unset_env;      ///< variables removed for this instance
  std::vector<std::string> argv;           ///< argv[0] as the program will see it
  std::string executable;                  ///< absolute path for execve, "" = looked up at launch (planned machines)
  std::string log_path;                    ///< file that receives stdout and stderr, "" = inherited
};

/// A whole run on one host.
struct LaunchPlan {
  std::vector<InstancePlan> instances;
  std::vector<Reason> reasons;
  std::string who;  ///< what messages call its one instance ("rank 3"); "" = "instance" and its number
  bool pin = true;  ///< false: cpus are shown and size the threads but no affinity is set
  bool require_shim = false;
};

}  // namespace ipexrun
