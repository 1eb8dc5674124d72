// Everything goes through one of three doors: copied as it is (files that hold numbers of the hardware and the kernel), filtered by
// lists of what is kept (status, cpuinfo, mounts, environment), or written by us (the ipexrun/ folder).
#include "launcher/machine/gather.h"

#include <glob.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <sstream>

#include "launcher/machine/cgroups.h"
#include "launcher/machine/machine_devices.h"
#include "launcher/machine/placeholders.h"
#include "launcher/machine/process_facts.h"
#include "launcher/machine/text_files.h"
#include "launcher/plan/machine.h"
#include "launcher/plan/show.h"

namespace ipexrun::launcher {
namespace {

constexpr std::size_t kMostFileBytes = 16u << 20;

/// Files that are copied as they are; shell patterns.
constexpr std::array kCopied{"/proc/meminfo",
                             "/proc/self/limits",
                             "/proc/sys/kernel/numa_balancing",
                             "/proc/sys/kernel/pid_max",
                             "/proc/sys/kernel/threads-max",
                             "/proc/sys/vm/max_map_count",
                             "/proc/sys/vm/overcommit_memory",
                             "/proc/sys/vm/swappiness",
                             "/proc/sys/vm/zone_reclaim_mode",
                             "/sys/devices/system/cpu/online",
                             "/sys/devices/system/cpu/offline",
                             "/sys/devices/system/cpu/possible",
                             "/sys/devices/system/cpu/present",
                             "/sys/devices/system/cpu/kernel_max",
                             "/sys/devices/system/cpu/isolated",
                             "/sys/devices/system/cpu/nohz_full",
                             "/sys/devices/system/cpu/smt/active",
                             "/sys/devices/system/cpu/smt/control",
                             "/sys/devices/system/cpu/cpu[0-9]*/online",
                             "/sys/devices/system/cpu/cpu[0-9]*/cpu_capacity",
                             "/sys/devices/system/cpu/cpu[0-9]*/topology/*",
                             "/sys/devices/system/cpu/cpu[0-9]*/cache/index*/[a-z]*",
                             "/sys/devices/system/cpu/cpu[0-9]*/cpufreq/cpuinfo_max_freq",
                             "/sys/devices/system/cpu/cpu[0-9]*/cpufreq/base_frequency",
                             "/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor",
                             "/sys/devices/cpu_core/cpus",
                             "/sys/devices/cpu_atom/cpus",
                             "/sys/devices/cpu_lowpower/cpus",
                             "/sys/devices/system/node/online",
                             "/sys/devices/system/node/possible",
                             "/sys/devices/system/node/has_cpu",
                             "/sys/devices/system/node/has_memory",
                             "/sys/devices/system/node/node[0-9]*/cpumap",
                             "/sys/devices/system/node/node[0-9]*/cpulist",
                             "/sys/devices/system/node/node[0-9]*/meminfo",
                             "/sys/devices/system/node/node[0-9]*/distance",
                             "/sys/devices/system/node/node[0-9]*/hugepages/hugepages-*/nr_hugepages",
                             "/sys/devices/system/node/node[0-9]*/access[01]/initiators/*",
                             "/sys/devices/system/node/node[0-9]*/memory_side_cache/index*/*",
                             "/sys/kernel/mm/hugepages/hugepages-*/nr_hugepages",
                             "/sys/kernel/mm/transparent_hugepage/enabled",
                             "/sys/kernel/mm/transparent_hugepage/defrag"};

/// Of a GPU's folder under /sys/bus/pci/devices (or behind /sys/class/drm/card*/device).
constexpr std::array kOfGpu{"/vendor",
                            "/device",
                            "/class",
                            "/numa_node",
                            "/local_cpulist",
                            "/drm/card*/lmem_total_bytes",
                            "/tile*/physical_vram_size_bytes",
                            "/tile*/memory/physical_vram_size_bytes"};
/// ... and folders whose names alone count.
constexpr std::array kFoldersOfGpu{"/drm/card*", "/drm/renderD*", "/drm/card*/gt/gt*", "/tile*", "/tile*/gt*"};

constexpr std::array kCgroupFiles{"cpu.max",
                                  "cpu.weight",
                                  "cpu.cfs_quota_us",
                                  "cpu.cfs_period_us",
                                  "cpu.shares",
                                  "cpuset.cpus",
                                  "cpuset.cpus.effective",
                                  "cpuset.effective_cpus",
                                  "cpuset.mems",
                                  "cpuset.mems.effective",
                                  "cpuset.effective_mems",
                                  "pids.max",
                                  "pids.current",
                                  "memory.max",
                                  "memory.high",
                                  "memory.current",
                                  "memory.limit_in_bytes",
                                  "memory.usage_in_bytes",
                                  "memory.use_hierarchy",
                                  "memory.stat",
                                  "cgroup.controllers"};

constexpr std::array kStatusKeys{"Threads", "Seccomp",      "NoNewPrivs",        "CapInh",       "CapPrm",           "CapEff",
                                 "CapBnd",  "Cpus_allowed", "Cpus_allowed_list", "Mems_allowed", "Mems_allowed_list"};
/// Arm boards put a serial number there; x86 has none.
constexpr std::array kCpuinfoKeys{"processor",   "vendor_id", "cpu family",   "model",           "model name",
                                  "stepping",    "microcode", "physical id",  "siblings",        "core id",
                                  "cpu cores",   "flags",     "Features",     "CPU implementer", "CPU architecture",
                                  "CPU variant", "CPU part",  "CPU revision", "cache size"};

/// Variables that change threads, binding, instruction sets or memory of a program. A value with a '/' may name a home: left out.
constexpr std::array kEnvironment{"OMP_",           "GOMP_",
                                  "KMP_",           "MKL_NUM",
                                  "MKL_DYNAMIC",    "MKL_ENABLE",
                                  "DNNL_",          "ONEDNN_",
                                  "ATEN_CPU",       "MALLOC_",
                                  "TCMALLOC_",      "MIMALLOC_",
                                  "GLIBC_TUNABLES", "ZE_AFFINITY",
                                  "ZE_FLAT",        "ONEAPI_DEVICE",
                                  "LOCAL_RANK",     "LOCAL_WORLD_SIZE",
                                  "SLURM_CPUS",     "SLURM_CPU_BIND",
                                  "SLURM_NTASKS",   "SLURM_TASKS_PER_NODE"};

class Gatherer {
 public:
  explicit Gatherer(std::string sysroot) : sysroot_(std::move(sysroot)), cgroups_(sysroot_) {}

  Gathered run(const std::vector<std::string>& environment) {
    for (const char* pattern : kCopied) copy(pattern);
    keep_lines("/proc/self/status", kStatusKeys, "Pid:\t1\nNSpid:\t1\n");
    keep_lines("/proc/cpuinfo", kCpuinfoKeys, "");
    gpus();
    cgroup_files();
    cgroup_tables();
    ours(environment);
    out_.hidden_names = placeholders_.count();
    for (const auto& [path, entry] : out_.tree) {
      if (entry.kind != TreeEntry::Kind::kFile) continue;
      ++out_.files;
      out_.bytes += entry.content.size();
    }
    return std::move(out_);
  }

 private:
  /// Paths below the sysroot that match, as the process sees them.
  [[nodiscard]] std::vector<std::string> matches(const std::string& pattern) const {
    std::vector<std::string> out;
    glob_t found{};
    if (::glob((sysroot_ + pattern).c_str(), GLOB_NOSORT, nullptr, &found) == 0)
      for (std::size_t i = 0; i < found.gl_pathc; ++i) out.push_back(std::string(found.gl_pathv[i]).substr(sysroot_.size()));
    ::globfree(&found);
    return out;
  }

  void put(const std::string& path, const std::string& text) { out_.tree[path.substr(1)] = {TreeEntry::Kind::kFile, text}; }
  void put_folder(const std::string& path) { out_.tree[path.substr(1)] = {TreeEntry::Kind::kFolder, ""}; }

  void copy_as(const std::string& path, const std::string& name) {
    std::error_code ignored;
    if (std::filesystem::is_directory(sysroot_ + path, ignored)) return put_folder(name);  // its name is what counts
    const std::optional<std::string> text = whole_file(sysroot_ + path);
    if (!text) return;  // some files of /sys can be listed and not read
    if (text->size() > kMostFileBytes) {
      out_.left_out.push_back(name + ": larger than 16 MiB");
    } else {
      put(name, *text);
    }
  }

  void copy(const std::string& pattern) {
    for (const std::string& path : matches(pattern)) copy_as(path, path);
  }

  /// Lines "key: value" and "key\t: value" with a known key, and the empty ones between blocks.
  template <std::size_t N>
  void keep_lines(const std::string& path, const std::array<const char*, N>& keys, const std::string& before) {
    const std::optional<std::string> text = whole_file(sysroot_ + path);
    if (!text) return;
    std::string kept = before;
    std::istringstream in(*text);
    for (std::string line; std::getline(in, line);) {
      const std::string key = line.substr(0, line.find_first_of("\t:"));
      if (line.empty() || std::find(keys.begin(), keys.end(), key) != keys.end()) kept += line + "\n";
    }
    put(path, kept);
  }

  void gpu(const std::string& folder) {
    constexpr std::string_view display = "0x03";
    if (!first_line(sysroot_ + folder + "/class").value_or("").starts_with(display)) return;
    for (const char* pattern : kOfGpu) copy(folder + pattern);
    for (const char* pattern : kFoldersOfGpu)
      for (const std::string& path : matches(folder + pattern)) put_folder(path);
    if (const auto slot = whole_file(sysroot_ + folder + "/uevent"); slot && slot->find("PCI_SLOT_NAME=") != std::string::npos) {
      const std::size_t begin = slot->find("PCI_SLOT_NAME=");
      put(folder + "/uevent", slot->substr(begin, slot->find('\n', begin) - begin) + "\n");
    }
    std::error_code failure;
    const std::filesystem::path driver = std::filesystem::read_symlink(sysroot_ + folder + "/driver", failure);
    if (!failure) out_.tree[folder.substr(1) + "/driver"] = {TreeEntry::Kind::kLink, "../drivers/" + driver.filename().string()};
  }

  void gpus() {
    for (const std::string& folder : matches("/sys/bus/pci/devices/*")) gpu(folder);
    if (matches("/sys/bus/pci/devices/*").empty())
      for (const std::string& folder : matches("/sys/class/drm/card*/device")) gpu(folder);
  }

  void cgroup_files() {
    for (const char* controller : {"cpu", "cpuset", "pids", "memory"}) {
      for (const CgroupFolder& folder : cgroups_.folders(controller)) {
        const std::string name = placeholders_.path(folder.path);
        for (const char* file : kCgroupFiles) copy_as(folder.path + "/" + file, name + "/" + file);
        out_.tree.erase(name.substr(1) + "/cgroup.procs");
        if (folder.own) put(name + "/cgroup.procs", "1\n");  // the number that this process has in the kept status file
      }
    }
  }

  /// /proc/self/{cgroup,mountinfo,cpuset} and /proc/mounts: what they say of cgroups, and nothing of other mounts.
  void cgroup_tables() {
    std::string memberships;
    int number = 0;
    for (const CgroupMembership& one : cgroups_.memberships()) {
      std::string controllers;
      for (const std::string& name : one.controllers) controllers += (controllers.empty() ? "" : ",") + shown_controller(name);
      memberships += std::to_string(one.v2 ? 0 : ++number) + ":" + controllers + ":" + placeholders_.path(one.path) + "\n";
    }
    if (!memberships.empty()) put("/proc/self/cgroup", memberships);
    std::string mountinfo;
    std::string mounts;
    for (const CgroupMount& one : cgroups_.mounts()) {
      std::string options = "rw";
      for (const std::string& name : one.controllers)
        if (name != "rw" && name != "ro" && name.find('/') == std::string::npos) options += "," + shown_controller(name);
      const std::string type = one.v2 ? "cgroup2" : "cgroup";
      const std::string point = escaped(placeholders_.path(one.point));
      mountinfo += "1 1 0:1 " + escaped(placeholders_.path(one.root)) + " " + point + " rw - " + type + " " + type + " " + options + "\n";
      mounts += type + " " + point + " " + type + " " + options + " 0 0\n";
    }
    put("/proc/self/mountinfo", mountinfo);
    put("/proc/mounts", mounts);
    if (const auto cpuset = first_line(sysroot_ + "/proc/self/cpuset")) put("/proc/self/cpuset", placeholders_.path(*cpuset) + "\n");
  }

  /// Controllers have the kernel's names; named hierarchies ("name=...") somebody's.
  std::string shown_controller(const std::string& name) {
    constexpr std::string_view named = "name=";
    return name.starts_with(named) ? std::string(named) + placeholders_.path(name.substr(named.size())) : name;
  }

  static std::string escaped(const std::string& path) {
    std::string out;
    for (const char c : path) out += c == ' ' ? std::string("\\040") : c == '\t' ? std::string("\\011") : std::string(1, c);
    return out;
  }

  void ours(const std::vector<std::string>& environment) {
    put("/ipexrun/process.txt", process_facts_text(read_process_facts(sysroot_)));
    std::string variables;
    for (const std::string& entry : environment) {
      const std::size_t equals = entry.find('=');
      const bool wanted =
          std::any_of(kEnvironment.begin(), kEnvironment.end(), [&](const char* prefix) { return entry.starts_with(prefix); });
      if (!wanted || equals == std::string::npos) continue;
      const bool path = entry.find('/', equals) != std::string::npos;
      variables += path ? entry.substr(0, equals + 1) + "(a path)\n" : entry + "\n";
    }
    put("/ipexrun/environment.txt", variables);
    if (sysroot_.empty()) {
      utsname name{};
      ::uname(&name);
      put("/ipexrun/system.txt",
          std::string(name.sysname) + " " + name.release + " " + name.machine + ", hwloc API " + topology_library_version() + "\n");
      // What hwloc would ask the running kernel for.
      put("/proc/hwloc-nofile-info", "OSName: Linux\nArchitecture: " + std::string(name.machine) +
                                         "\nFallbackNbProcessors: " + std::to_string(std::max(1l, ::sysconf(_SC_NPROCESSORS_ONLN))) +
                                         "\nPageSize: " + std::to_string(::sysconf(_SC_PAGESIZE)) + "\n");
    } else {
      copy("/ipexrun/system.txt");
      copy("/proc/hwloc-nofile-info");
    }
    Result<Machine> machine = read_machine(sysroot_);
    if (machine.ok()) machine->gpus = read_gpus(sysroot_);
    put("/ipexrun/machine.json", machine.ok() ? placeholders_.text(machine_json(*machine)) : machine.error().line() + "\n");
  }

  std::string sysroot_;
  Cgroups cgroups_;
  Placeholders placeholders_;
  Gathered out_;
};

}  // namespace

Gathered gather(const std::string& sysroot, const std::vector<std::string>& environment) { return Gatherer(sysroot).run(environment); }

}  // namespace ipexrun::launcher
