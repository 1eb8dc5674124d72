#include <hwloc.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <set>

#include "launcher/plan/machine.h"
#include "launcher/machine/machine_limits.h"
#include "launcher/plan/show.h"

namespace ipexrun::launcher {
namespace {

struct TopologyDeleter {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, TopologyDeleter>;

struct BitmapDeleter {
  void operator()(hwloc_bitmap_s* bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, BitmapDeleter>;

std::vector<int> numbers_of(hwloc_const_bitmap_t bitmap) {
  std::vector<int> out;
  for (int i = hwloc_bitmap_first(bitmap); i >= 0; i = hwloc_bitmap_next(bitmap, i)) out.push_back(i);
  return out;
}

Bitmap bitmap_of(const std::vector<int>& numbers) {
  Bitmap out(hwloc_bitmap_alloc());
  for (const int number : numbers) hwloc_bitmap_set(out.get(), static_cast<unsigned>(number));
  return out;
}

/// hwloc takes some settings from the environment only; a variable is set just while the topology is read and never seen by children.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::string& value) : name_(value.empty() ? nullptr : name) {
    if (name_ != nullptr) ::setenv(name_, value.c_str(), 1);
  }
  ~ScopedVariable() {
    if (name_ != nullptr) ::unsetenv(name_);
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const char* name_;
};

enum class Source { kSystem, kSynthetic, kXml };

Result<Topology> load(Source source, const std::string& text) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return Error{kExitFailure, "hwloc cannot start", ""};
  Topology topology(raw);
  // Disallowed CPUs are wanted too: what was left out is counted and said.
  hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  // hwloc's x86 part would move this process to each CPU in turn, for details that nobody reads here.
  if (source == Source::kSystem) hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
  if (source == Source::kSynthetic && hwloc_topology_set_synthetic(raw, text.c_str()) != 0)
    return Error{kExitUsage, "--topology '" + text + "' is neither a file nor a machine in hwloc's synthetic form",
                 "for example \"node:2 core:28 pu:2\""};
  if (source == Source::kXml && hwloc_topology_set_xml(raw, text.c_str()) != 0)
    return Error{kExitUsage, "--topology '" + text + "' cannot be read as an hwloc XML file", "lstopo machine.xml writes one"};
  const ScopedVariable fsroot("HWLOC_FSROOT", source == Source::kSystem ? text : "");
  const ScopedVariable quiet("HWLOC_HIDE_ERRORS", "2");  // without /sys (a bare chroot) it plans from what it has; no line of its own
  if (hwloc_topology_load(raw) != 0) {
    if (source == Source::kSystem) return Error{kExitFailure, "hwloc cannot read the topology of this machine", ""};
    return Error{kExitUsage, "--topology '" + text + "' is no topology that hwloc can load", "lstopo machine.xml writes one"};
  }
  return topology;
}

/// The NUMA node that holds all of `core`. Several do on machines with high-bandwidth memory beside DRAM: the lowest number is DRAM.
int node_of(hwloc_topology_t topology, hwloc_obj_t core) {
  int best = -1;
  for (hwloc_obj_t node = nullptr; (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr;) {
    if (hwloc_bitmap_isincluded(core->cpuset, node->cpuset) == 0) continue;
    const int os_index = static_cast<int>(node->os_index);
    if (best < 0 || os_index < best) best = os_index;
  }
  return std::max(best, 0);
}

/// CPUs of the kinds that Intel calls Atom. Kinds also tell favoured cores of one sort apart; those are no reason to drop any.
Bitmap efficient_cpus(hwloc_topology_t topology) {
  Bitmap out(hwloc_bitmap_alloc());
  const int kinds = hwloc_cpukinds_get_nr(topology, 0);
  for (int kind = 0; kind < kinds; ++kind) {
    Bitmap cpus(hwloc_bitmap_alloc());
    unsigned info_count = 0;
    hwloc_info_s* infos = nullptr;
    if (hwloc_cpukinds_get_info(topology, static_cast<unsigned>(kind), cpus.get(), nullptr, &info_count, &infos, 0) != 0) continue;
    for (unsigned i = 0; i < info_count; ++i)
      if (std::string(infos[i].name) == "CoreType" && std::string(infos[i].value) == "IntelAtom")
        hwloc_bitmap_or(out.get(), out.get(), cpus.get());
  }
  return out;
}

std::string model_of(hwloc_topology_t topology) {
  for (const hwloc_obj_type_t type : {HWLOC_OBJ_PACKAGE, HWLOC_OBJ_MACHINE}) {
    hwloc_obj_t object = hwloc_get_obj_by_type(topology, type, 0);
    const char* model = object == nullptr ? nullptr : hwloc_obj_get_info_by_name(object, "CPUModel");
    if (model != nullptr) return model;
  }
  return "";
}

/// The topology, restricted to the CPUs in `allowed`.
Machine describe(hwloc_topology_t topology, hwloc_const_bitmap_t allowed) {
  Machine out;
  const Bitmap efficient = efficient_cpus(topology);
  // Some virtual machines show no cores; then each PU is one.
  const bool has_cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) > 0;
  const hwloc_obj_type_t core_type = has_cores ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  for (hwloc_obj_t object = nullptr; (object = hwloc_get_next_obj_by_type(topology, core_type, object)) != nullptr;) {
    ++out.total_cores;
    Core core;
    const auto take = [&](hwloc_obj_t pu) {
      if (hwloc_bitmap_isset(allowed, pu->os_index) != 0) core.pus.push_back(static_cast<int>(pu->os_index));
    };
    if (has_cores) {
      for (hwloc_obj_t pu = nullptr;
           (pu = hwloc_get_next_obj_inside_cpuset_by_type(topology, object->cpuset, HWLOC_OBJ_PU, pu)) != nullptr;)
        take(pu);
    } else {
      take(object);
    }
    if (core.pus.empty()) continue;
    hwloc_obj_t package = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_PACKAGE, object);
    core.package = package == nullptr ? 0 : static_cast<int>(package->logical_index);
    core.node = node_of(topology, object);
    core.efficient = hwloc_bitmap_isset(efficient.get(), static_cast<unsigned>(core.pus.front())) != 0;
    out.cores.push_back(std::move(core));
  }
  std::stable_sort(out.cores.begin(), out.cores.end(), [](const Core& a, const Core& b) { return a.node < b.node; });
  out.total_pus = std::max(0, hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU));
  out.packages = std::max(1, hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PACKAGE));
  for (hwloc_obj_t node = nullptr; (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr;)
    out.nodes.push_back({static_cast<int>(node->os_index), node->attr->numanode.local_memory, true});
  std::sort(out.nodes.begin(), out.nodes.end(), [](const NumaNode& a, const NumaNode& b) { return a.os_index < b.os_index; });
  out.name = model_of(topology);
  return out;
}

std::size_t count_pus(const Machine& machine) {
  std::size_t count = 0;
  for (const Core& core : machine.cores) count += core.pus.size();
  return count;
}

void apply_limits(const Limits& limits, Machine& machine) {
  machine.quota_cpus = limits.quota_cpus;
  if (limits.quota_cpus > 0) {
    std::string cpus = std::to_string(limits.quota_cpus);
    cpus.resize(cpus.find('.') + 3);
    machine.notes.push_back("a CPU quota of " + cpus + " CPUs holds (" + limits.quota_from + ")");
  }
  if (!limits.mems_allowed) return;
  std::vector<int> left_out;
  for (NumaNode& node : machine.nodes) {
    const auto& allowed = *limits.mems_allowed;
    node.memory_allowed = std::find(allowed.begin(), allowed.end(), node.os_index) != allowed.end();
    if (!node.memory_allowed) left_out.push_back(node.os_index);
  }
  if (!left_out.empty()) machine.notes.push_back("memory of NUMA node " + cpu_list_text(left_out) + " is not allowed (Mems_allowed)");
}

Result<Machine> finish(Topology topology, const Limits& limits, bool live) {
  Bitmap allowed(hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(topology.get())));
  if (limits.cpus_allowed) hwloc_bitmap_and(allowed.get(), allowed.get(), bitmap_of(*limits.cpus_allowed).get());
  if (live) {
    Bitmap affinity(hwloc_bitmap_alloc());
    if (hwloc_get_cpubind(topology.get(), affinity.get(), HWLOC_CPUBIND_THREAD) == 0)
      hwloc_bitmap_and(allowed.get(), allowed.get(), affinity.get());
  }
  Machine machine = describe(topology.get(), allowed.get());
  if (machine.cores.empty())
    return Error{kExitFailure, "no CPU of this machine is allowed (" + cpu_list_text(numbers_of(allowed.get())) + ")",
                 "check the cpuset of the container"};
  const std::size_t pus = count_pus(machine);
  if (pus < static_cast<std::size_t>(machine.total_pus))
    machine.notes.push_back(std::to_string(pus) + " of " + std::to_string(machine.total_pus) + " CPUs are allowed (affinity and cpuset)");
  apply_limits(limits, machine);
  return machine;
}

}  // namespace

Result<Machine> read_machine(const std::string& sysroot) {
  Result<Topology> topology = load(Source::kSystem, sysroot);
  if (!topology.ok()) return topology.error();
  Result<Machine> machine = finish(std::move(*topology), read_limits(sysroot), sysroot.empty());
  if (!machine.ok()) return machine;
  machine->synthetic = !sysroot.empty();
  machine->isa = sysroot.empty() ? isa_of_cpu() : 0;
  return machine;
}

Result<Machine> machine_from_topology(const std::string& text_or_path, const std::string& sysroot) {
  struct stat info {};
  const bool is_file = ::stat(text_or_path.c_str(), &info) == 0;
  if (is_file && !S_ISREG(info.st_mode)) return Error{kExitUsage, "--topology '" + text_or_path + "' is not a regular file", ""};
  if (!is_file && text_or_path.ends_with(".xml"))
    return Error{kExitUsage, "--topology file '" + text_or_path + "' does not exist", "lstopo machine.xml writes one"};
  Result<Topology> topology = load(is_file ? Source::kXml : Source::kSynthetic, text_or_path);
  if (!topology.ok()) return topology.error();
  Result<Machine> machine = finish(std::move(*topology), sysroot.empty() ? Limits{} : read_limits(sysroot), false);
  if (!machine.ok()) return machine;
  machine->synthetic = true;
  if (machine->name.empty() || !is_file) machine->name = text_or_path;
  return machine;
}

std::string topology_library_version() {
  const unsigned version = hwloc_get_api_version();
  return std::to_string(version >> 16) + "." + std::to_string((version >> 8) & 0xff) + "." + std::to_string(version & 0xff);
}

}  // namespace ipexrun::launcher
