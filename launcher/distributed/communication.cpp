#include "launcher/distributed/communication.h"

#include <algorithm>

#include "launcher/plan/environment.h"
#include "launcher/plan/show.h"
#include "launcher/plan/text.h"

namespace ipexrun::launcher {
namespace {

/// The second hardware thread of the core that owns `cpu`; -1 = it has none that is allowed.
int second_thread(const Machine& machine, int cpu) {
  for (const Core& core : machine.cores) {
    if (std::find(core.pus.begin(), core.pus.end(), cpu) == core.pus.end()) continue;
    for (const int other : core.pus)
      if (other != cpu) return other;
  }
  return -1;
}

std::string joined(const std::vector<int>& numbers) {
  std::string out;
  for (const int number : numbers) out += (out.empty() ? "" : ",") + std::to_string(number);
  return out;
}

/// Fewer threads, in every variable that the planner had made from their number.
void take_threads(InstancePlan& instance, int count) {
  const std::string before = std::to_string(instance.threads);
  instance.threads -= count;
  for (auto& [name, value] : instance.env)
    if ((name.ends_with("_NUM_THREADS") || name == "TORCHINDUCTOR_COMPILE_THREADS") && value == before)
      value = std::to_string(instance.threads);
}

}  // namespace

Status reserve_communication(const Options& options, const Machine& machine, int local_size, LaunchPlan& plan) {
  const int count = options.distributed.ccl_worker_count;
  const bool logical = options.distributed.logical_cores_for_ccl;
  if (count == 0) {
    if (!logical) return ok_status();
    return Error{kExitUsage, "--logical-cores-for-ccl without --ccl-worker-count", "say how many communication threads a rank has"};
  }
  const auto wanted = static_cast<std::size_t>(count);
  std::vector<int> workers;
  for (InstancePlan& instance : plan.instances) {
    const std::size_t least = logical ? wanted : wanted + 1;
    if (instance.cpus.size() < least)
      return Error{kExitUsage,
                   "--ccl-worker-count " + std::to_string(count) + " leaves nothing to compute with: a rank has " +
                       count_text(instance.cpus.size(), "CPU") + " here",
                   logical ? "" : "fewer ranks, fewer communication threads, or --logical-cores-for-ccl"};
    for (std::size_t i = 0; i < wanted; ++i) {
      const int cpu = logical ? second_thread(machine, instance.cpus[i]) : instance.cpus[i];
      if (cpu < 0)
        return Error{kExitUsage,
                     "--logical-cores-for-ccl: the core of CPU " + std::to_string(instance.cpus[i]) +
                         " has no second hardware thread that may be used",
                     "leave it out: --ccl-worker-count then takes whole cores"};
      if (logical && std::find(instance.cpus.begin(), instance.cpus.end(), cpu) != instance.cpus.end())
        return Error{kExitUsage, "--logical-cores-for-ccl and --use-logical-cores both want the second hardware threads",
                     "give one of them"};
      workers.push_back(cpu);
    }
    if (!logical && instance.threads == static_cast<int>(instance.cpus.size())) take_threads(instance, count);
  }
  // oneCCL wants one entry for each worker of each rank of the host, in order. A rank that knows its own CPUs only repeats them: it
  // looks at no other entry.
  std::vector<int> all = workers;
  while (plan.instances.size() == 1 && all.size() < wanted * static_cast<std::size_t>(local_size))
    all.insert(all.end(), workers.begin(), workers.end());
  for (InstancePlan& instance : plan.instances) {
    instance.env["CCL_WORKER_COUNT"] = std::to_string(count);
    if (plan.pin || logical) instance.env["CCL_WORKER_AFFINITY"] = joined(all);
  }
  plan.reasons.push_back({"ranks", count_text(wanted, "worker"),
                          logical
                              ? "--ccl-worker-count: oneCCL's threads run on second hardware threads of each rank"
                              : "--ccl-worker-count: each rank has so many OpenMP threads less than CPUs, for oneCCL's or gloo's threads"});
  return ok_status();
}

void add_rank_variables(const Options& options, const Rank& rank, const std::map<std::string, std::string>& env, LaunchPlan& plan) {
  InstancePlan& instance = plan.instances.front();
  if (rank.engine == Engine::kTorchrun) return;
  instance.env["RANK"] = std::to_string(rank.rank);
  instance.env["WORLD_SIZE"] = std::to_string(rank.world_size);
  instance.env["LOCAL_RANK"] = std::to_string(rank.local_rank);
  instance.env["LOCAL_WORLD_SIZE"] = std::to_string(rank.local_size);
  plan.reasons.push_back({"ranks", "RANK=" + std::to_string(rank.rank),
                          std::string("RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE as torchrun sets them, from the variables of ") +
                              engine_name(rank.engine)});

  const Meeting known = meeting_of(rank, env);
  const auto settle = [&](const char* name, const std::string& asked, const std::string& guess, const std::string& why) {
    const std::string own = value_of(env, name);
    if (!asked.empty()) {
      instance.env[name] = asked;
    } else if (own.empty() && !guess.empty()) {
      instance.env[name] = guess;
      plan.reasons.push_back({"ranks", std::string(name) + "=" + guess, why});
    } else if (own.empty()) {
      plan.reasons.push_back({"ranks", name,
                              std::string(name) +
                                  " is not set and cannot be known here: ranks on other hosts will not be found (give mpirun -x " + name +
                                  "=HOST, or --master-addr)",
                              true});
    }
  };
  settle("MASTER_ADDR", options.distributed.master_addr, known.address, known.address_from);
  settle("MASTER_PORT", options.distributed.master_port ? std::to_string(*options.distributed.master_port) : "", known.port,
         known.port_from);
}

}  // namespace ipexrun::launcher
