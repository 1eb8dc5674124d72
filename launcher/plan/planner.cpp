#include "launcher/plan/planner.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "configs/contract/env.h"
#include "launcher/plan/devices.h"
#include "launcher/plan/instance_env.h"
#include "launcher/plan/placement.h"
#include "launcher/plan/show.h"
#include "launcher/plan/text.h"

namespace ipexrun::launcher {
namespace {

/// A file name may have 255 bytes; a CPU list of a large machine can be longer.
constexpr std::size_t kMostListInLogName = 120;

bool disabled(const PlanContext& context) {
  const auto found = context.env.find(env::name(env::Id::kDisable));
  if (found == context.env.end()) return false;
  std::string text = found->second;
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text == "1" || text == "true" || text == "on" || text == "yes";
}

void set_program(const Options& options, const PlanContext& context, InstancePlan& instance) {
  const std::string python = context.python.empty() ? "python" : context.python;
  switch (options.program_kind) {
    case ProgramKind::kScript:
      instance.argv = {python, options.program};
      instance.executable = context.python;
      break;
    case ProgramKind::kModule:
      instance.argv = {python, "-m", options.program};
      instance.executable = context.python;
      break;
    case ProgramKind::kExecutable:
      instance.argv = {options.program};
      instance.executable = context.executable;
      break;
  }
  instance.argv.insert(instance.argv.end(), options.args.begin(), options.args.end());
}

void explain_program(const Options& options, const InstancePlan& instance, std::vector<Reason>& reasons) {
  const std::string shown = instance.executable.empty() ? instance.argv.front() : instance.executable;
  if (options.program_kind == ProgramKind::kScript) {
    reasons.push_back(
        {"program", shown, "'" + options.program + "' ends in .py: it runs under python of PATH (--no-python runs it directly)"});
  } else if (options.program_kind == ProgramKind::kModule) {
    reasons.push_back({"program", shown, "-m " + options.program + " runs under python of PATH"});
  } else {
    reasons.push_back({"program", shown, "'" + options.program + "' is run as it is"});
  }
}

LaunchPlan plain_plan(const Options& options, const PlanContext& context) {
  LaunchPlan plan;
  plan.pin = false;
  InstancePlan instance;
  set_program(options, context, instance);
  explain_program(options, instance, plan.reasons);
  plan.instances.push_back(std::move(instance));
  return plan;
}

/// Binding helps where there is more than one node to choose from; it needs nodes that have memory, and may be used.
class MemoryChoice {
 public:
  MemoryChoice(const Options& options, const Machine& machine, bool pin) : machine_(machine) {
    // Nodes without cores (high-bandwidth memory, expanders) are no reason to bind: all of the machine's cores have all of it.
    std::set<int> with_cores;
    for (const Core& core : machine.cores) with_cores.insert(core.node);
    for (const NumaNode& node : machine.nodes) {
      sizes_known_ = sizes_known_ || node.memory_bytes > 0;
      if (node.memory_allowed && with_cores.count(node.os_index) != 0) ++homes_;
    }
    if (!options.bind_memory) {
      never_ = "not bound: --no-memory-bind";
    } else if (!machine.memory_policy.empty()) {
      never_ = "not bound: the memory policy that ipexrun was started under (" + machine.memory_policy + ") stays";
    } else if (!pin) {
      never_ = "not bound: the CPUs are not pinned either";
    } else if (machine.nodes.size() < 2) {
      never_ = "not bound: there is one NUMA node";
    }
  }

  /// Sets the policy of an instance on `slot`, and returns why.
  std::string choose(const Slot& slot, InstancePlan& instance) const {
    if (!never_.empty()) return never_;
    for (const NumaNode& node : machine_.nodes) {
      if (!std::binary_search(slot.nodes.begin(), slot.nodes.end(), node.os_index)) continue;
      if (sizes_known_ && node.memory_bytes == 0) return "not bound: a node of its cores has no memory of its own";
      if (!node.memory_allowed) return "not bound: memory of a node of its cores is not allowed (Mems_allowed)";
    }
    if (slot.nodes.size() == homes_) return "not bound: it has cores on every NUMA node whose memory it may use";
    instance.memory_policy = MemoryPolicy::kBind;
    return "bound to the nodes of its cores: remote memory costs time";
  }

 private:
  const Machine& machine_;
  std::string never_;         ///< why nothing is bound at all
  std::size_t homes_ = 0;     ///< nodes with usable cores and memory
  bool sizes_known_ = false;  ///< of the nodes' memories
};

/// The most threads an instance may have so that all instances can be made; as many as it wants where nothing limits them.
std::size_t most_threads(const Machine& machine, const std::vector<Slot>& slots, std::vector<Reason>& reasons) {
  std::size_t largest = 0;
  long needed = 0;
  for (const Slot& slot : slots) {
    largest = std::max(largest, slot.cpus.size());
    needed += static_cast<long>(slot.cpus.size()) + kFurtherThreads;
  }
  if (machine.max_threads <= 0 || needed <= machine.max_threads) return largest;
  const auto count = static_cast<long>(slots.size());
  const auto out = static_cast<std::size_t>(std::clamp(machine.max_threads / count - kFurtherThreads, 1L, static_cast<long>(largest)));
  std::string text = "only " + count_text(static_cast<std::size_t>(machine.max_threads), "more thread") +
                     " may be made here (ulimit -u or pids.max): " + count_text(slots.size(), "instance") +
                     (slots.size() == 1 ? " gets at most " : " get at most ") + count_text(out, "thread") + " of OpenMP each instead of " +
                     std::to_string(largest) + ", with " + std::to_string(kFurtherThreads) + " each for everything else";
  if (count * (1 + kFurtherThreads) > machine.max_threads) text += "; even these may be refused";
  reasons.push_back({"threads", std::to_string(out), text, true});
  return out;
}

/// The config's `env:` is in the instance already, and stays.
void set_devices(const DeviceSlot& slot, InstancePlan& instance) {
  instance.devices = slot.tiles;
  instance.env.insert(slot.env.begin(), slot.env.end());
}

std::string log_path(const Options& options, const PlanContext& context, const InstancePlan& instance) {
  if (options.log_dir.empty()) return "";
  std::string cores = cpu_list_text(instance.cpus);
  if (cores.size() > kMostListInLogName)
    cores = std::to_string(instance.cpus.front()) + "-to-" + std::to_string(instance.cpus.back()) + "-" +
            count_text(instance.cpus.size(), "cpu");
  std::replace(cores.begin(), cores.end(), ' ', '-');
  const std::string folder = options.log_dir.back() == '/' ? options.log_dir : options.log_dir + "/";
  return folder + options.log_file_prefix + "_" + context.log_stamp + "_instance_" + std::to_string(instance.index) + "_cores_" + cores +
         ".log";
}

/// --instance-idx, checked; all indices when it was not given.
Result<std::vector<std::size_t>> wanted_indices(const Options& options, std::size_t count) {
  std::set<std::size_t> out;
  for (const int index : options.instance_idx) {
    if (static_cast<std::size_t>(index) >= count)
      return Error{kExitUsage, "--instance-idx " + std::to_string(index) + ": the plan has " + count_text(count, "instance"),
                   "they are numbered from 0 to " + std::to_string(count - 1)};
    out.insert(static_cast<std::size_t>(index));
  }
  if (out.empty())
    for (std::size_t i = 0; i < count; ++i) out.insert(i);
  return std::vector<std::size_t>(out.begin(), out.end());
}

ShimUse shim_use(const Options& options) {
  const bool xpu = options.command == Command::kXpu;
  if (options.optimize && !xpu) return ShimUse::kOptimize;
  if (options.optimize && options.opencl != "off") return ShimUse::kObserve;
  return options.bench.enabled ? ShimUse::kObserve : ShimUse::kNone;
}

/// CPUs of an instance that workers of DataLoaders get: the last ones, which are near the others.
Result<std::size_t> loader_cores(const Options& options, const Slot& slot) {
  constexpr std::size_t kLeastForAuto = 4;
  constexpr std::size_t kComputeEach = 8;
  const std::size_t cpus = slot.cpus.size();
  if (options.loader_cores == kLoaderCoresAuto)
    return cpus < kLeastForAuto ? std::size_t{0} : std::max<std::size_t>(1, cpus / kComputeEach);
  const auto wanted = static_cast<std::size_t>(options.loader_cores);
  if (wanted > 0 && wanted >= cpus)
    return Error{kExitUsage, "--loader-cores " + std::to_string(wanted) + ": an instance has " + count_text(cpus, "CPU"),
                 "at least one has to be left to compute"};
  return wanted;
}

}  // namespace

Result<LaunchPlan> make_plan(const Options& options, const Machine& machine, const PlanContext& context) {
  if (disabled(context)) {
    LaunchPlan plan = plain_plan(options, context);
    plan.reasons.push_back({"env", "IPEXRUN_DISABLE", "the kill switch is on: the program runs as if ipexrun were not there"});
    return plan;
  }
  LaunchPlan plan;
  plan.require_shim = options.require_shim;
  for (const std::string& note : machine.notes) plan.reasons.push_back({"machine", "", note});
  Result<Pool> pool = choose_pool(options, machine, plan.reasons);
  if (!pool.ok()) return pool.error();
  plan.pin = pool->pin;
  Result<std::vector<DeviceSlot>> devices = std::vector<DeviceSlot>{};
  const bool xpu = options.command == Command::kXpu && options.opencl != "any";
  if (xpu)
    devices = options.slices_are_ranks ? devices_of_ranks(options, machine, context.env, options.ninstances, plan.reasons)
                                       : choose_devices(options, machine, context.env, plan.reasons);
  if (!devices.ok()) return devices.error();
  Result<std::vector<Slot>> slots =
      xpu ? choose_near_slots(options, machine, *pool, *devices, plan.reasons) : choose_slots(options, machine, *pool, plan.reasons);
  if (!slots.ok()) return slots.error();
  Result<std::vector<std::size_t>> indices = wanted_indices(options, slots->size());
  if (!indices.ok()) return indices.error();
  if (indices->size() < slots->size())
    plan.reasons.push_back({"instances", std::to_string(indices->size()) + " of " + std::to_string(slots->size()), "--instance-idx"});

  EnvDraft env(options, context, plan.reasons);
  env.add_libraries();
  env.add_memory();
  Status preload = env.add_preload(shim_use(options), true);
  if (!preload.ok()) return preload.error();
  if (shim_use(options) == ShimUse::kOptimize) {
    env.add_dtype(machine);
    env.add_graph_mode();
    env.add_inductor(machine);
    env.add_select();
  }
  if (options.command == Command::kXpu) env.add_xpu();
  env.add_split_sgd();
  env.add_logs();
  env.add_config_env();

  const std::size_t most = most_threads(machine, *slots, plan.reasons);
  const MemoryChoice memory(options, machine, plan.pin);
  std::vector<std::pair<std::string, std::vector<int>>> memory_said;  // why, and of which instances
  for (const std::size_t index : *indices) {
    const Slot& slot = (*slots)[index];
    InstancePlan instance;
    instance.index = static_cast<int>(index);
    instance.cpus = slot.cpus;
    instance.numa_nodes = slot.nodes;
    const bool can_move = plan.pin && shim_use(options) != ShimUse::kNone;
    const Result<std::size_t> for_loaders = can_move ? loader_cores(options, slot) : Result<std::size_t>(std::size_t{0});
    if (!for_loaders.ok()) return for_loaders.error();
    const std::vector<int> loader_cpus(instance.cpus.end() - static_cast<std::ptrdiff_t>(*for_loaders), instance.cpus.end());
    instance.cpus.resize(instance.cpus.size() - *for_loaders);
    instance.threads = env.threads_for(std::min(instance.cpus.size(), most));
    instance.env = env.for_instance(instance.index, slots->size(), instance.threads);
    if (!loader_cpus.empty()) instance.env[env::name(env::Id::kLoaderCpus)] = cpu_list_text(loader_cpus);
    if (options.loader_cores != 0)
      plan.reasons.push_back({"loader", loader_cpus.empty() ? "none" : cpu_list_text(loader_cpus),
                              !can_move             ? "--loader-cores: nothing moves workers with --no-optimize or without pinning"
                              : loader_cpus.empty() ? "--loader-cores auto: an instance of fewer than 4 CPUs keeps them all to compute"
                                                    : "--loader-cores: workers of DataLoaders of instance " + std::to_string(index)});
    instance.unset_env = env.unset();
    if (xpu) set_devices((*devices)[index], instance);
    const std::string why = memory.choose(slot, instance);
    auto said = std::find_if(memory_said.begin(), memory_said.end(), [&](const auto& entry) { return entry.first == why; });
    if (said == memory_said.end()) said = memory_said.insert(said, {why, {}});
    said->second.push_back(instance.index);
    set_program(options, context, instance);
    instance.log_path = log_path(options, context, instance);
    plan.instances.push_back(std::move(instance));
  }
  for (const auto& [why, which] : memory_said)
    plan.reasons.push_back({"memory", why.starts_with("bound") ? "bind" : "inherit",
                            memory_said.size() == 1 ? why : "instance " + cpu_list_text(which) + ": " + why});
  const bool same = std::all_of(plan.instances.begin(), plan.instances.end(),
                                [&](const InstancePlan& one) { return one.threads == plan.instances.front().threads; });
  plan.reasons.push_back({"threads", same ? std::to_string(plan.instances.front().threads) : "by instance",
                          "OMP_NUM_THREADS: one thread a CPU of the instance, unless said otherwise above"});
  explain_program(options, plan.instances.front(), plan.reasons);
  if (!options.log_dir.empty()) plan.reasons.push_back({"logs", options.log_dir, "--log-dir: one file an instance"});
  return plan;
}

Result<LaunchPlan> make_variant_plan(const std::string& variant, const Options& options, const Machine& machine,
                                     const PlanContext& context) {
  if (variant == "ipexrun") return make_plan(options, machine, context);
  if (variant == "launch") {
    Options launch_only = options;
    launch_only.optimize = false;
    launch_only.require_shim = false;
    return make_plan(launch_only, machine, context);
  }
  if (variant != "stock") return Error{kExitUsage, "no variant '" + variant + "'", "stock, launch and ipexrun are known"};
  LaunchPlan plan = plain_plan(options, context);
  Options observed = options;
  observed.require_shim = false;
  observed.crash_report = false;
  observed.pack_memory.clear();
  EnvDraft env(observed, context, plan.reasons);
  Status preload = env.add_preload(ShimUse::kObserve, false);
  if (!preload.ok()) return preload.error();
  InstancePlan& instance = plan.instances.front();
  instance.env = env.for_instance(0, 1, 0);
  for (const char* ours : {"OMP_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS"}) instance.env.erase(ours);
  return plan;
}

}  // namespace ipexrun::launcher
