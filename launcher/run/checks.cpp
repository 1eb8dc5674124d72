#include "launcher/run/checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "configs/base/isa.h"
#include "configs/contract/env.h"
#include "configs/contract/event_ring.h"
#include "launcher/run/allocators.h"
#include "launcher/run/context.h"
#include "launcher/run/library_search.h"
#include "launcher/run/omp_runtime.h"
#include "launcher/run/program.h"
#include "launcher/run/runner.h"
#include "launcher/run/system_facts.h"
#include "launcher/run/torch_probe.h"

namespace ipexrun::launcher {
namespace {

namespace fs = std::filesystem;

constexpr const char* kShimFile = "libipexrun_shim.so";

/// One program run as an instance would be: bound to the first allowed CPU and its node, with the shim inside.
struct Trial {
  bool ran = false;
  std::string problem;
  int exit_code = 0;
  IpexrunEventHeader header{};
};

Trial try_run(const std::vector<std::string>& argv, const std::string& lib_dir, const Machine& machine, const std::string& run_dir) {
  LaunchPlan plan;
  InstancePlan instance;
  instance.argv = argv;
  instance.executable = argv.front();
  const std::string shim = lib_dir + "/" + kShimFile;
  instance.env = {{"LD_PRELOAD", shim},
                  {env::name(env::Id::kPreload), shim},
                  {env::name(env::Id::kLibDir), lib_dir},
                  {env::name(env::Id::kMode), "observe"},
                  {env::name(env::Id::kLog), "error"}};
  if (!machine.cores.empty()) {
    instance.cpus = {machine.cores.front().pus.front()};
    instance.numa_nodes = {machine.cores.front().node};
    instance.memory_policy = MemoryPolicy::kBind;
  }
  plan.instances.push_back(instance);
  RunSettings settings;
  settings.run_dir = run_dir;
  settings.quiet = true;
  Trial trial;
  const auto outcome = posix_runner().run(plan, settings);
  if (!outcome) {
    trial.problem = outcome.error().line();
    return trial;
  }
  trial.exit_code = outcome->exit_code;
  const auto events = read_events(events_path_in(run_dir, 0));
  trial.ran = events.ok();
  if (events) {
    trial.header = events->header;
  } else {
    trial.problem = events.error().line();
  }
  return trial;
}

/// The checks share what the earlier ones found.
class Examination {
 public:
  explicit Examination(const Machine& machine) : machine_(machine) {}

  std::vector<Check> run() {
    libraries();
    if (auto made = make_run_dir()) {
      run_dir_ = made.value();
      add(CheckLevel::kOk, "run folder", fs::path(run_dir_).parent_path().string());
    } else {
      add(CheckLevel::kWarn, "run folder", made.error().what, made.error().hint);
    }
    start();
    python();
    allocators();
    cpu();
    system();
    std::error_code ignored;
    if (!run_dir_.empty()) fs::remove_all(run_dir_, ignored);
    return std::move(checks_);
  }

 private:
  void add(CheckLevel level, const char* name, std::string seen, std::string hint = "") {
    checks_.push_back({level, name, std::move(seen), std::move(hint)});
  }

  void libraries() {
    lib_dir_ = find_lib_dir();
    if (lib_dir_.empty()) {
      add(CheckLevel::kFail, "libraries", "no folder lib/ipexrun beside the folder of this launcher",
          "install again, or set IPEXRUN_LIB_DIR");
      return;
    }
    add(CheckLevel::kOk, "libraries", lib_dir_);
  }

  /// A run of this launcher's --version under the shim shows in one go: preload, affinity and memory policy.
  void start() {
    if (lib_dir_.empty() || run_dir_.empty()) return;
    const std::string shim = lib_dir_ + "/" + kShimFile;
    std::error_code failure;
    if (!fs::exists(shim, failure))
      return add(CheckLevel::kFail, "shim", "'" + shim + "' does not exist", "install again: programs run without optimization");
    if (const std::string why = preload_objection(shim); !why.empty()) {
      return add(CheckLevel::kFail, "shim", "not safe to preload: " + why, "install it where only you or root can write");
    }
    const fs::path self = fs::read_symlink("/proc/self/exe", failure);
    const Trial trial = try_run({self.string(), "--version"}, lib_dir_, machine_, run_dir_);
    if (!trial.ran) return add(CheckLevel::kFail, "start", trial.problem);
    shim_loads_ = trial.exit_code == 0 && trial.header.shim_state >= IPEXRUN_SHIM_LOADED;
    if (shim_loads_) {
      add(CheckLevel::kOk, "shim", "loads into a program");
    } else {
      add(CheckLevel::kFail, "shim", fmt::format("does not load into a program (exit code {})", trial.exit_code),
          "run IPEXRUN_LOG=debug ipexrun true");
    }
    const std::string note = trial.header.bind_note;
    const bool cpus_bound = note.find("sched_setaffinity") == std::string::npos;
    add(cpus_bound ? CheckLevel::kOk : CheckLevel::kWarn, "pinning", cpus_bound ? "a child sees the cores that were set" : note,
        cpus_bound ? "" : "instances run where the system puts them");
    if (const std::size_t at = note.find("set_mempolicy"); at != std::string::npos) {
      add(CheckLevel::kWarn, "memory binding", note.substr(at), "in a container: --cap-add SYS_NICE or a seccomp profile that allows it");
    } else {
      add(CheckLevel::kOk, "memory binding", "allowed");
    }
  }

  void python() {
    const std::string path = find_python(env::get_named("PATH").value_or(""));
    if (path.empty()) return add(CheckLevel::kWarn, "python", "no python or python3 in PATH", "only other programs can be run");
    const PythonFacts facts = ask_python(path);
    if (!facts.ok) return add(CheckLevel::kWarn, "python", facts.problem);
    add(CheckLevel::kOk, "python", fmt::format("{} {}", path, facts.version));

    const std::vector<std::string> plugins = plugin_versions(lib_dir_);
    const std::string have = plugins.empty() ? "no plugin is installed" : fmt::format("plugins for torch {}", fmt::join(plugins, ", "));
    if (facts.torch_root.empty())
      return add(CheckLevel::kWarn, "torch", "this python has no torch; " + have, "activate the environment that has it");
    const std::string minor = minor_version(facts.torch_version);
    const bool match = std::find(plugins.begin(), plugins.end(), minor) != plugins.end();
    add(CheckLevel::kOk, "torch", facts.torch_version + " at " + facts.torch_root);
    if (!match) {
      return add(CheckLevel::kWarn, "plugin", fmt::format("none for torch {}: {}", facts.torch_version, have),
                 "stock PyTorch will run; build ipexrun with IPEXRUN_PYTHON=" + path);
    }
    if (shim_loads_) {
      const Trial trial = try_run({path, "-c", "import torch"}, lib_dir_, machine_, run_dir_);
      if (trial.ran && trial.header.shim_state == IPEXRUN_SHIM_ACTIVE) {
        add(CheckLevel::kOk, "plugin", "active in a program that imports torch " + facts.torch_version);
      } else {
        add(CheckLevel::kWarn, "plugin",
            fmt::format("not active: {}", trial.header.shim_reason[0] != '\0' ? trial.header.shim_reason : trial.problem.c_str()),
            "stock PyTorch will run");
      }
    }
    hook(facts);
  }

  void hook(const PythonFacts& facts) {
    const fs::path folder = fs::path(lib_dir_) / "python";
    std::error_code failure;
    const bool there = fs::exists(folder / "entry.py", failure) && fs::exists(folder / ("_ipexrun_hook" + facts.ext_suffix), failure);
    add(there ? CheckLevel::kOk : CheckLevel::kWarn, "python hook",
        there ? "built for this python" : "not built for this python (" + facts.ext_suffix + ")",
        there ? "" : "--bench times programs as a whole instead of module calls");
  }

  void allocators() {
    std::map<std::string, std::string> variables;
    for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX", "HOME", "LD_LIBRARY_PATH", "LD_PRELOAD", "PATH", "PYTHONPATH"})
      variables[name] = env::get_named(name).value_or("");
    const std::string python = find_python(variables["PATH"]);
    const auto folders = library_folders(variables, python);
    for (const std::string& name : allocator_names()) {
      const LibraryChoice choice = find_allocator(name, folders);
      add(CheckLevel::kOk, "allocator",
          choice.path.empty() ? name + ": not installed (package " + allocator_package(name) + ")" : name + ": " + choice.path);
    }
    if (!python.empty()) add(CheckLevel::kOk, "OpenMP", find_program_omp(python, variables).reason);
    for (const char* name : {"intel", "llvm"}) {
      const auto choice = choose_omp_runtime(name, omp_library_folders(variables, python));
      add(CheckLevel::kOk, "OpenMP", std::string(name) + ": " + (choice ? choice->path : "not installed"));
    }
  }

  void cpu() {
    const IsaSet has = isa_of_cpu();
    const IsaSet may = isa_of_process();
    add(has == may ? CheckLevel::kOk : CheckLevel::kWarn, "instruction sets",
        fmt::format("CPU {}, this process {}", level_name(has), level_name(may)),
        has == may ? "" : "capped by ATEN_CPU_CAPABILITY, IPEXRUN_MAX_ISA or a refused AMX permission");
    if (isa_has(has, kIsaAmxBf16)) {
      const bool granted = request_amx_permission();
      add(granted ? CheckLevel::kOk : CheckLevel::kWarn, "AMX", granted ? "permitted to this process" : "the kernel refused the permission",
          granted ? "" : "needs Linux 5.16 or newer and a seccomp profile that allows arch_prctl");
    }
    if (machine_.quota_cpus > 0) {
      const bool small = machine_.quota_cpus < static_cast<double>(machine_.cores.size());
      add(small ? CheckLevel::kWarn : CheckLevel::kOk, "quota",
          fmt::format("{:.2f} CPUs, {} cores allowed", machine_.quota_cpus, machine_.cores.size()),
          small ? "instances are sized by the quota" : "");
    } else {
      add(CheckLevel::kOk, "quota", "none");
    }
  }

  void system() {
    const SystemFacts facts = read_system_facts();
    if (facts.governor.empty()) {
      add(CheckLevel::kOk, "governor", "not visible (virtual machine, or set by firmware)");
    } else {
      const bool good = facts.governor == "performance" || facts.governor == "schedutil";
      add(good ? CheckLevel::kOk : CheckLevel::kWarn, "governor", facts.governor,
          good ? "" : "for steady timings: cpupower frequency-set -g performance");
    }
    if (!facts.huge_pages.empty()) {
      add(CheckLevel::kOk, "huge pages", facts.huge_pages, facts.huge_pages == "never" ? "madvise lets allocators use them" : "");
    }
    if (!facts.numa_balancing.empty() && facts.numa_balancing != "0" && machine_.nodes.size() > 1) {
      add(CheckLevel::kWarn, "NUMA balancing", "on", "sysctl kernel.numa_balancing=0: bound instances gain nothing from moved pages");
    }
  }

  const Machine& machine_;
  std::vector<Check> checks_;
  std::string lib_dir_;
  std::string run_dir_;
  bool shim_loads_ = false;
};

}  // namespace

std::vector<Check> all_checks(const Machine& machine) { return Examination(machine).run(); }

std::string gain_paragraph(const Machine& machine) {
  const IsaSet isa = isa_of_process();
  std::string out;
  if (isa_has(isa, kIsaAmxBf16)) {
    out +=
        "This CPU multiplies bf16 matrices in AMX tiles: linear layers of float32 programs can run several times faster inside\n"
        "with --dtype auto (the default), which keeps float32 at every boundary and checks the accuracy of each site.\n";
  } else if (isa_has(isa, kIsaAvx512Bf16)) {
    out += "This CPU has bf16 dot products (AVX512-BF16): linear layers can gain with --dtype auto, less than with AMX.\n";
  } else if (isa_has(isa, kIsaAvx512)) {
    out += "This CPU has AVX-512 but no bf16 arithmetic: linear layers gain from packed weights in float32.\n";
  } else if (isa_has(isa, kIsaAvx2)) {
    out += "This CPU has AVX2: what is left to gain is mostly the launch configuration and packed weights in float32.\n";
  } else {
    out += "This CPU has no vector extension that the kernels of ipexrun use: expect gains from the launch configuration only.\n";
  }
  if (machine.nodes.size() > 1) {
    out += fmt::format("{} NUMA nodes: --throughput-mode runs one instance on each with its own memory.\n", machine.nodes.size());
  }
  if (machine.cores.size() >= 8) {
    out += fmt::format("{} cores: small batches gain more from several instances (--ninstances, --latency-mode) than from more threads.\n",
                       machine.cores.size());
  }
  return out;
}

}  // namespace ipexrun::launcher
