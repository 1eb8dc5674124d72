// What hwloc does not tell about CPUs, from small files below /sys and /proc.
#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <tuple>

#include "launcher/machine/text_files.h"
#include "launcher/machine/whole_machine.h"

namespace ipexrun::launcher {
namespace {

struct Processor {
  int number = -1;
  int package = 0;
  int core = -1;  ///< -1: not said, as on Arm
};

/// The blocks of /proc/cpuinfo, and the CPU's model.
std::vector<Processor> read_processors(const std::string& path, std::string* model) {
  std::vector<Processor> out;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string key = line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1);
    const std::size_t begin = line.find_first_not_of(' ', colon + 1);
    const std::string value = begin == std::string::npos ? "" : line.substr(begin);
    const auto number = whole_number_in(value);
    if (key == "processor" && number) out.push_back({static_cast<int>(*number), 0, -1});
    if (key == "model name" && model->empty()) *model = value;
    if (out.empty() || !number) continue;
    if (key == "physical id") out.back().package = static_cast<int>(*number);
    if (key == "core id") out.back().core = static_cast<int>(*number);
  }
  return out;
}

}  // namespace

std::optional<WholeMachine> read_cpuinfo(const std::string& sysroot) {
  WholeMachine out;
  const std::vector<Processor> processors = read_processors(sysroot + "/proc/cpuinfo", &out.machine.name);
  if (processors.empty()) return std::nullopt;
  std::map<std::tuple<int, int, int>, Core> cores;  // a core that has no number is told apart by that of its CPU
  std::map<int, int> packages;
  for (const Processor& one : processors) packages.emplace(one.package, 0);
  int next = 0;
  for (auto& [number, logical] : packages) logical = next++;
  for (const Processor& one : processors) {
    Core& core = cores[{one.package, one.core, one.core < 0 ? one.number : 0}];
    core.package = packages[one.package];
    core.pus.push_back(one.number);
    out.allowed.push_back(one.number);
  }
  for (auto& [key, core] : cores) {
    std::sort(core.pus.begin(), core.pus.end());
    out.machine.cores.push_back(std::move(core));
  }
  std::sort(out.allowed.begin(), out.allowed.end());
  out.machine.packages = static_cast<int>(packages.size());
  out.machine.total_cores = static_cast<int>(out.machine.cores.size());
  out.machine.total_pus = static_cast<int>(processors.size());
  const std::string memory = whole_file(sysroot + "/proc/meminfo").value_or("");
  out.machine.nodes.push_back({0, meminfo_bytes(memory, "MemTotal"), true, true});
  out.machine.notes.push_back("/sys is not there: cores are taken from /proc/cpuinfo; NUMA nodes, caches and kinds of cores are not known");
  if (std::all_of(processors.begin(), processors.end(), [](const Processor& one) { return one.core < 0; }))
    out.machine.notes.push_back("/proc/cpuinfo names no cores: each CPU counts as one");
  return out;
}

std::vector<int> offline_cpus(const std::string& sysroot) {
  const std::string folder = sysroot + "/sys/devices/system/cpu/";
  const auto present = list_in(folder + "present");
  const auto online = list_in(folder + "online");
  std::vector<int> out;
  if (present && online) std::set_difference(present->begin(), present->end(), online->begin(), online->end(), std::back_inserter(out));
  return out;
}

std::vector<int> small_cpus(const std::string& sysroot, const std::vector<int>& cpus) {
  std::set<int> named;
  for (const char* kind : {"cpu_atom", "cpu_lowpower"})
    for (const int cpu : list_in(sysroot + "/sys/devices/" + kind + "/cpus").value_or(std::vector<int>{})) named.insert(cpu);
  if (!named.empty()) return {named.begin(), named.end()};
  const auto capacity_of = [&](int cpu) {
    const auto line = first_line(sysroot + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cpu_capacity");
    return line ? whole_number_in(*line).value_or(0) : 0;
  };
  // Where the kernel knows capacities it shows one for each CPU; two of them tell.
  if (cpus.empty() || (capacity_of(cpus.front()) == 0 && capacity_of(cpus.back()) == 0)) return {};
  std::map<int, std::uint64_t> capacities;
  std::uint64_t largest = 0;
  for (const int cpu : cpus) largest = std::max(largest, capacities[cpu] = capacity_of(cpu));
  std::vector<int> out;
  for (const auto& [cpu, capacity] : capacities)
    if (is_small_capacity(capacity, largest)) out.push_back(cpu);
  return out;
}

}  // namespace ipexrun::launcher
