// hwloc's topology as plain data. The only file that includes hwloc.
#include <hwloc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <set>

#include "configs/contract/env.h"
#include "launcher/machine/text_files.h"
#include "launcher/machine/whole_machine.h"

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

/// hwloc takes some settings from the environment only. A variable is set just while the topology is read; what the user had there
/// comes back, so that children see that and nothing of ours.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::string& value) : name_(value.empty() ? nullptr : name) {
    if (name_ == nullptr) return;
    const std::string key = std::string(name) + "=";
    for (const std::string& entry : env::all())
      if (entry.starts_with(key)) before_ = entry.substr(key.size());
    ::setenv(name_, value.c_str(), 1);
  }
  ~ScopedVariable() {
    if (name_ == nullptr) return;
    if (before_) {
      ::setenv(name_, before_->c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

/// What hwloc need not look at. Each CPU has some 25 small files, and opening them is what reading a machine costs.
void leave_out(hwloc_topology_t topology, TopologySource source) {
  // Disallowed CPUs are wanted too: what was left out is counted and said.
  unsigned long flags = HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED | HWLOC_TOPOLOGY_FLAG_NO_DISTANCES | HWLOC_TOPOLOGY_FLAG_NO_MEMATTRS;
  if (source == TopologySource::kSystem) {
    // Its x86 part would move this process to each CPU in turn, for details that nobody reads here.
    hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
    flags |= HWLOC_TOPOLOGY_FLAG_NO_CPUKINDS;  // frequencies for the most part; small_cpus() has the rest
    for (const hwloc_obj_type_t type : {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE})
      hwloc_topology_set_type_filter(topology, type, HWLOC_TYPE_FILTER_KEEP_NONE);
  }
  hwloc_topology_set_flags(topology, flags);
}

Result<Topology> load(TopologySource source, const std::string& text) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return Error{kExitFailure, "hwloc cannot start", ""};
  Topology topology(raw);
  leave_out(raw, source);
  if (source == TopologySource::kSynthetic && hwloc_topology_set_synthetic(raw, text.c_str()) != 0)
    return Error{kExitUsage, "--topology '" + text + "' is neither a file nor a machine in hwloc's synthetic form",
                 "for example \"node:2 core:28 pu:2\""};
  if (source == TopologySource::kXml && hwloc_topology_set_xml(raw, text.c_str()) != 0)
    return Error{kExitUsage, "--topology '" + text + "' cannot be read as an hwloc XML file", "lstopo machine.xml writes one"};
  const ScopedVariable fsroot("HWLOC_FSROOT", source == TopologySource::kSystem ? text : "");
  const ScopedVariable quiet("HWLOC_HIDE_ERRORS", "2");  // a machine that hwloc finds odd is planned for as it is; no line of its own
  if (hwloc_topology_load(raw) != 0) {
    if (source == TopologySource::kSystem) return Error{kExitFailure, "hwloc cannot read the topology of this machine", ""};
    return Error{kExitUsage, "--topology '" + text + "' is no topology that hwloc can load", "lstopo machine.xml writes one"};
  }
  return topology;
}

/// The NUMA node that holds all of `core`; -1 = none. Several do on machines with high-bandwidth memory beside DRAM: the lowest number
/// is DRAM.
int node_of(hwloc_topology_t topology, hwloc_obj_t core) {
  int best = -1;
  for (hwloc_obj_t node = nullptr; (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr;) {
    if (hwloc_bitmap_isincluded(core->cpuset, node->cpuset) == 0) continue;
    const int os_index = static_cast<int>(node->os_index);
    if (best < 0 || os_index < best) best = os_index;
  }
  return best;
}

/// One kind of CPUs: what hwloc found the same for all of them.
struct Kind {
  Bitmap cpus;
  std::string core_type;       ///< "IntelAtom", "IntelCore"; "" = not said
  std::uint64_t capacity = 0;  ///< the kernel's cpu_capacity (the largest CPU has 1024); 0 = not said
};

std::vector<Kind> kinds_of(hwloc_topology_t topology) {
  std::vector<Kind> out;
  const int count = hwloc_cpukinds_get_nr(topology, 0);
  for (int index = 0; index < count; ++index) {
    Kind kind{Bitmap(hwloc_bitmap_alloc()), "", 0};
    unsigned info_count = 0;
    hwloc_info_s* infos = nullptr;
    if (hwloc_cpukinds_get_info(topology, static_cast<unsigned>(index), kind.cpus.get(), nullptr, &info_count, &infos, 0) != 0) continue;
    for (unsigned i = 0; i < info_count; ++i) {
      if (std::string(infos[i].name) == "CoreType") kind.core_type = infos[i].value;
      if (std::string(infos[i].name) == "LinuxCapacity") kind.capacity = whole_number_in(infos[i].value).value_or(0);
    }
    out.push_back(std::move(kind));
  }
  return out;
}

/// CPUs of small cores in an XML file (those of a /sys tree: small_cpus()). Intel's are named; Arm's have a small capacity. Frequencies
/// alone decide nothing: they differ between favoured cores of one sort too.
Bitmap efficient_cpus(hwloc_topology_t topology) {
  Bitmap out(hwloc_bitmap_alloc());
  const std::vector<Kind> kinds = kinds_of(topology);
  std::uint64_t largest = 0;
  bool named = false;
  for (const Kind& kind : kinds) {
    largest = std::max(largest, kind.capacity);
    named = named || !kind.core_type.empty();
  }
  for (const Kind& kind : kinds) {
    const bool small_type = named && !kind.core_type.empty() && kind.core_type != "IntelCore";
    const bool small_capacity = !named && kind.capacity > 0 && is_small_capacity(kind.capacity, largest);
    if (small_type || small_capacity) hwloc_bitmap_or(out.get(), out.get(), kind.cpus.get());
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

/// Number of the nearest ancestor of `type`, -1 = none.
int ancestor_of(hwloc_topology_t topology, hwloc_obj_t object, hwloc_obj_type_t type) {
  hwloc_obj_t found = hwloc_get_ancestor_obj_by_type(topology, type, object);
  return found == nullptr ? -1 : static_cast<int>(found->logical_index);
}

std::vector<NumaNode> nodes_of(hwloc_topology_t topology) {
  std::vector<NumaNode> out;
  bool sizes_known = false;
  for (hwloc_obj_t node = nullptr; (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr;) {
    out.push_back({static_cast<int>(node->os_index), node->attr->numanode.local_memory, true, false});
    sizes_known = sizes_known || node->attr->numanode.local_memory > 0;
  }
  std::sort(out.begin(), out.end(), [](const NumaNode& a, const NumaNode& b) { return a.os_index < b.os_index; });
  // A node of CPUs without memory of its own: nothing can be bound to it, and the kernel leaves it out of Mems_allowed too.
  for (NumaNode& node : out) node.memory_allowed = !sizes_known || node.memory_bytes > 0;
  return out;
}

WholeMachine describe(hwloc_topology_t topology) {
  WholeMachine out;
  Machine& machine = out.machine;
  machine.nodes = nodes_of(topology);
  const Bitmap efficient = efficient_cpus(topology);
  // Some virtual machines show no cores; then each PU is one.
  const bool has_cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) > 0;
  const hwloc_obj_type_t core_type = has_cores ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  // Each PU is asked for its core: asking each core for its PUs looks at all of them each time.
  std::vector<std::vector<int>> pus(static_cast<std::size_t>(std::max(0, hwloc_get_nbobjs_by_type(topology, core_type))));
  for (hwloc_obj_t pu = nullptr; (pu = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PU, pu)) != nullptr;) {
    hwloc_obj_t home = has_cores ? hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_CORE, pu) : pu;
    if (home != nullptr) pus[home->logical_index].push_back(static_cast<int>(pu->os_index));
  }
  std::set<int> nodes_with_cores;
  for (hwloc_obj_t object = nullptr; (object = hwloc_get_next_obj_by_type(topology, core_type, object)) != nullptr;) {
    Core core;
    core.pus = pus[object->logical_index];
    if (core.pus.empty()) continue;
    core.package = std::max(0, ancestor_of(topology, object, HWLOC_OBJ_PACKAGE));
    core.l3 = ancestor_of(topology, object, HWLOC_OBJ_L3CACHE);
    core.node = node_of(topology, object);
    if (core.node < 0) {
      out.homeless.insert(out.homeless.end(), core.pus.begin(), core.pus.end());
      core.node = machine.nodes.empty() ? 0 : machine.nodes.front().os_index;
    }
    nodes_with_cores.insert(core.node);
    core.efficient = hwloc_bitmap_isset(efficient.get(), static_cast<unsigned>(core.pus.front())) != 0;
    machine.cores.push_back(std::move(core));
  }
  for (NumaNode& node : machine.nodes) node.has_cores = nodes_with_cores.count(node.os_index) != 0;
  std::stable_sort(machine.cores.begin(), machine.cores.end(), [](const Core& a, const Core& b) { return a.node < b.node; });
  std::sort(out.homeless.begin(), out.homeless.end());
  machine.total_cores = static_cast<int>(machine.cores.size());
  machine.total_pus = std::max(0, hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU));
  machine.packages = std::max(1, hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PACKAGE));
  machine.name = model_of(topology);
  out.allowed = numbers_of(hwloc_topology_get_allowed_cpuset(topology));
  return out;
}

}  // namespace

Result<WholeMachine> read_topology(TopologySource source, const std::string& text) {
  Result<Topology> topology = load(source, text);
  if (!topology.ok()) return topology.error();
  return describe(topology->get());
}

std::string topology_library_version() {
  const unsigned version = hwloc_get_api_version();
  return std::to_string(version >> 16) + "." + std::to_string((version >> 8) & 0xff) + "." + std::to_string(version & 0xff);
}

}  // namespace ipexrun::launcher
